import {
  attemptStoreContract,
  checkpointStoreContract,
  journalContract,
  logContract,
  retryContract,
  runStoreContract,
  threadStoreContract,
} from '@reindeer/testkit';
import { test } from 'vitest';
import { missing, postgresOfFile } from '../testing/postgres.ts';

const { pair } = postgresOfFile();

if (missing !== null) test('the contracts of all stores on Postgres', (ctx) => ctx.skip(missing ?? ''));
else {
  runStoreContract('postgres', pair, { modelRuns: 25 });
  logContract('postgres', pair);
  journalContract('postgres', pair);
  threadStoreContract('postgres', pair);
  checkpointStoreContract('postgres', pair);
  attemptStoreContract('postgres', pair);
  retryContract('postgres', pair);
}
