import { MemoryDatabase, openMemory, openSqlite, type SqliteStores } from '@reindeer/database';
import { testSurroundings } from '@reindeer/testkit';
import { afterAll, beforeAll } from 'vitest';
import { systemSurroundings } from '../surroundings.ts';
import { batchServiceSeeds } from '../testing/batch-seeds.ts';

const surroundings = testSurroundings();
const memory = openMemory({ surroundings, database: new MemoryDatabase(surroundings.random) });
batchServiceSeeds('memory', () => memory);

let sqlite: SqliteStores;
beforeAll(async () => {
  sqlite = await openSqlite({ folder: ':memory:', surroundings: systemSurroundings() });
});
afterAll(() => sqlite.close());
batchServiceSeeds('SQLite', () => sqlite);
