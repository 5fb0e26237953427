import {
  attemptStoreContract,
  batchRaceContract,
  batchStoreContract,
  channelStoreContract,
  checkpointStoreContract,
  journalContract,
  logContract,
  memoryStoreContract,
  retryContract,
  runStoreContract,
  scheduleStoreContract,
  threadStoreContract,
} from '@reindeer/testkit';
import { test } from 'vitest';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import { unisolatedPostgres } from '../testing/unisolated.ts';
import { loadDriver } from './driver.ts';

const { pair, unisolated } = postgresOfFile();

if (missing !== null) test('the contracts of all stores on Postgres', (ctx) => ctx.skip(missing ?? ''));
else {
  runStoreContract('postgres', pair, { modelRuns: 25 });
  logContract('postgres', pair);
  memoryStoreContract('postgres', pair);
  journalContract('postgres', pair);
  threadStoreContract('postgres', pair);
  checkpointStoreContract('postgres', pair);
  attemptStoreContract('postgres', pair);
  retryContract('postgres', pair);
  batchStoreContract('postgres', pair);
  scheduleStoreContract('postgres', pair);
  channelStoreContract('postgres', pair);
  batchRaceContract('postgres', async () => {
    const { held, peer, close } = await unisolated();
    return unisolatedPostgres(held, peer, await loadDriver(), close);
  });
}
