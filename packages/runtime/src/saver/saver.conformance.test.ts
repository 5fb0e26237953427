import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import { deltaChannelHistoryTests, validate } from '@langchain/langgraph-checkpoint-validation';
import { openSqlite, type SqliteStores } from '@reindeer/database';
import type { LoadedCheckpoint } from '@reindeer/protocol';
import { testSurroundings } from '@reindeer/testkit';
import { ReindeerSaver } from './saver.ts';

/** LangGraph's own suite for checkpointers, on SQLite: all of it. */
let stores: SqliteStores;

const initializer = {
  checkpointerName: 'ReindeerSaver on SQLite',
  beforeAll: async () => {
    stores = await openSqlite({ folder: ':memory:', surroundings: testSurroundings() });
  },
  afterAll: () => stores.close(),
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

validate(initializer);
deltaChannelHistoryTests(initializer);
