import type { CheckpointStore } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';

/** The port over the scripts of `scripts.ts`. */
export function checkpointStore(call: Call): CheckpointStore {
  return {
    incremental: true,
    put: (input) => call('checkpoints.put', input),
    putWrites: (input) => call('checkpoints.putWrites', input),
    load: (input) => call('checkpoints.load', input),
    list: (input) => call('checkpoints.list', input),
    rollback: (input) => call('checkpoints.rollback', input),
    prune: (input) => call('checkpoints.prune', input),
    deleteThread: (threadId) => call('checkpoints.deleteThread', { threadId }),
    copyThread: (input) => call('checkpoints.copyThread', input),
  };
}
