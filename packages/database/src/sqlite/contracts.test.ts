import {
  attemptStoreContract,
  batchRaceContract,
  batchStoreContract,
  channelStoreContract,
  journalContract,
  logContract,
  memoryStoreContract,
  type OpenedStores,
  retryContract,
  runStoreContract,
  scheduleStoreContract,
  testSurroundings,
  threadStoreContract,
} from '@reindeer/testkit';
import { unisolatedSqlite } from '../testing/unisolated.ts';
import { openInline } from './inline.ts';

/** One process per database: both handles of a scene are the same one. */
async function open(): Promise<OpenedStores> {
  const stores = await openInline({ surroundings: testSurroundings() });
  return { a: stores, b: stores, close: () => stores.close() };
}

runStoreContract('sqlite', open, { modelRuns: 30 });
logContract('sqlite', open);
memoryStoreContract('sqlite', open);
journalContract('sqlite', open);
attemptStoreContract('sqlite', open);
threadStoreContract('sqlite', open);
retryContract('sqlite', open);
batchStoreContract('sqlite', open);
scheduleStoreContract('sqlite', open);
channelStoreContract('sqlite', open);
batchRaceContract('sqlite', unisolatedSqlite);
