import { openPostgres } from '@reindeer/database';
import { postgresMissing, type ThrowawayPostgres, testSurroundings, throwawayPostgres } from '@reindeer/testkit';
import { afterAll, beforeAll, test } from 'vitest';
import { finalizationAuthority } from '../testing/finalization.ts';

const missing = await postgresMissing();

if (missing !== null) test('the authority to finalize on Postgres', (ctx) => ctx.skip(missing));
else {
  let server: ThrowawayPostgres;
  beforeAll(async () => {
    server = await throwawayPostgres();
  });
  afterAll(() => server.stop());
  finalizationAuthority('Postgres', async () => {
    const url = await server.createDatabase();
    return openPostgres({ url, folder: null, connections: 4, surroundings: testSurroundings({ seed: 3 }) });
  });
}
