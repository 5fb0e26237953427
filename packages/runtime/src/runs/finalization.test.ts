import { MemoryDatabase, openMemory, openSqlite } from '@reindeer/database';
import { testSurroundings } from '@reindeer/testkit';
import { finalizationAuthority } from '../testing/finalization.ts';

finalizationAuthority('memory', async () => {
  const surroundings = testSurroundings({ seed: 3 });
  return openMemory({ surroundings, database: new MemoryDatabase(surroundings.random) });
});
finalizationAuthority('SQLite', () => openSqlite({ folder: ':memory:', surroundings: testSurroundings({ seed: 3 }) }));
