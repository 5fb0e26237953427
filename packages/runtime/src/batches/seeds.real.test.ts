import { openPostgres, type PostgresStores } from '@reindeer/database';
import { postgresMissing, type ThrowawayPostgres, throwawayPostgres } from '@reindeer/testkit';
import { afterAll, beforeAll, beforeEach } from 'vitest';
import { systemSurroundings } from '../surroundings.ts';
import { batchServiceSeeds } from '../testing/batch-seeds.ts';

const missing = await postgresMissing();
let server: ThrowawayPostgres | null = null;
let stores: PostgresStores;
beforeAll(async () => {
  if (missing !== null) return;
  server = await throwawayPostgres();
  const url = await server.createDatabase();
  stores = await openPostgres({ url, folder: null, connections: 4, surroundings: systemSurroundings() });
});
afterAll(async () => {
  if (server === null) return;
  await stores.close();
  await server.stop();
});
beforeEach((context) => {
  if (missing !== null) context.skip(missing);
});

batchServiceSeeds('Postgres', () => stores);
