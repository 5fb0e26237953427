import type { Stores, Surroundings } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { memoryBatchStore } from './batches.ts';
import { memoryChannels } from './channels.ts';
import { memoryCheckpointStore } from './checkpoints.ts';
import { MemoryDatabase } from './data.ts';
import { memoryFeedback } from './feedback.ts';
import { memoryJournal } from './journal.ts';
import { memoryLog } from './log.ts';
import type { Transact } from './runs.ts';
import { memoryRunStore } from './runs.ts';
import { memorySchedules } from './schedules.ts';
import { memoryThreadStore } from './threads.ts';
import { memoryUserMemory } from './user-memory.ts';

export { MemoryDatabase } from './data.ts';

/**
 * All stores in memory: for tests, the simulator, and as the model of the SQL stores. Nothing outlives the process.
 *
 * @param options.surroundings only the source of randomness is used (the epoch of a new database).
 * @param options.database a database to share with other handles, each of which stands for a process; default a new one.
 * @returns stores whose every call is one atomic transaction and answers later, never in the same turn.
 *   After `close()` every call is rejected with `store_unavailable`; the shared database stays for the other handles.
 */
export function openMemory(options: { surroundings: Surroundings; database?: MemoryDatabase }): Stores {
  const database = options.database ?? new MemoryDatabase(options.surroundings.random);
  const listeners = new Set<(threadId: string, head: number) => void>();
  let open = true;

  const transact: Transact = async (work) => {
    // Later than the call, as with a real store: no caller may rely on an effect before its answer.
    await undefined;
    if (!open) throw new ReindeerError('store_unavailable', 'The store is closed.');
    return work();
  };

  return {
    threads: memoryThreadStore(database, transact),
    runs: memoryRunStore(database, transact),
    log: memoryLog(database, transact, listeners),
    journal: memoryJournal(database, transact),
    checkpoints: memoryCheckpointStore(database, transact),
    batches: memoryBatchStore(database, transact),
    memory: memoryUserMemory(database, transact),
    feedback: memoryFeedback(database, transact),
    schedules: memorySchedules(database, transact),
    channels: memoryChannels(database, transact),
    close: async () => {
      open = false;
      for (const listener of listeners) database.listeners.delete(listener);
      listeners.clear();
    },
  };
}
