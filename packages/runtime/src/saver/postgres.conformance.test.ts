import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import { deltaChannelHistoryTests, validate } from '@langchain/langgraph-checkpoint-validation';
import { openPostgres, type PostgresStores } from '@reindeer/database';
import type { LoadedCheckpoint } from '@reindeer/protocol';
import { postgresMissing, type ThrowawayPostgres, testSurroundings, throwawayPostgres } from '@reindeer/testkit';
import { test } from 'vitest';
import { ReindeerSaver } from './saver.ts';

/** LangGraph's own suite for checkpointers, on Postgres: all of it. */
const missing = await postgresMissing();
let server: ThrowawayPostgres;
let stores: PostgresStores;

const initializer = {
  checkpointerName: 'ReindeerSaver on Postgres',
  beforeAll: async () => {
    server = await throwawayPostgres();
    const url = await server.createDatabase();
    stores = await openPostgres({ url, folder: null, surroundings: testSurroundings(), connections: 4 });
  },
  afterAll: async () => {
    await stores.close();
    await server.stop();
  },
  createCheckpointer: () =>
    new ReindeerSaver({
      store: stores.checkpoints,
      fence: null,
      surroundings: testSurroundings(),
    }) as unknown as BaseCheckpointSaver,
  destroyCheckpointer: async () => {
    const all = { threadId: null, ns: null, checkpointId: null, before: null, limit: null, filter: {} };
    const left: readonly LoadedCheckpoint[] = await stores.checkpoints.list(all);
    for (const threadId of new Set(left.map((row) => row.threadId))) await stores.checkpoints.deleteThread(threadId);
  },
};

if (missing !== null) test('the suite for checkpointers on Postgres', (ctx) => ctx.skip(missing));
else {
  validate(initializer);
  deltaChannelHistoryTests(initializer);
}
