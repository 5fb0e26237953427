import type { OpenedStores } from '@reindeer/testkit';
import {
  batchRaceContract,
  batchStoreContract,
  channelStoreContract,
  journalContract,
  logContract,
  memoryStoreContract,
  retryContract,
  runStoreContract,
  scheduleStoreContract,
  testSurroundings,
  threadStoreContract,
} from '@reindeer/testkit';
import { unisolatedMemory } from '../testing/unisolated.ts';
import { MemoryDatabase, openMemory } from './index.ts';

/** Two handles on one database, as two processes would have. */
async function open(): Promise<OpenedStores> {
  const surroundings = testSurroundings();
  const database = new MemoryDatabase(surroundings.random);
  const a = openMemory({ surroundings, database });
  const b = openMemory({ surroundings, database });
  return { a, b, close: async () => void (await Promise.all([a.close(), b.close()])) };
}

runStoreContract('memory', open, { modelRuns: 300 });
logContract('memory', open);
memoryStoreContract('memory', open);
journalContract('memory', open);
threadStoreContract('memory', open);
retryContract('memory', open);
batchStoreContract('memory', open);
scheduleStoreContract('memory', open);
channelStoreContract('memory', open);
batchRaceContract('memory', unisolatedMemory);
