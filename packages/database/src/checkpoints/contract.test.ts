import { checkpointStoreContract, testSurroundings } from '@reindeer/testkit';
import { openMemory } from '../memory/index.ts';
import { openInline } from '../sqlite/inline.ts';

checkpointStoreContract('memory', async () => {
  const stores = openMemory({ surroundings: testSurroundings() });
  return { a: stores, b: stores, close: () => stores.close() };
});
checkpointStoreContract('sqlite', async () => {
  const stores = await openInline({ surroundings: testSurroundings() });
  return { a: stores, b: stores, close: () => stores.close() };
});
