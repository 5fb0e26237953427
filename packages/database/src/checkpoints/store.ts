import { type CheckpointStore, ReindeerError } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';

export function checkpointStore(_call: Call): CheckpointStore {
  const missing = async (): Promise<never> => {
    throw new ReindeerError('not_implemented', 'Checkpoints are not stored yet.');
  };
  return {
    put: missing,
    putWrites: missing,
    load: missing,
    list: missing,
    rollback: missing,
    prune: missing,
    deleteThread: missing,
    copyThread: missing,
  };
}
