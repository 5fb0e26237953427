// npm test: installs what is missing, then runs every suite. The last line is `N passed, N failed, N skipped`.
import { join } from 'node:path';
import { handOver } from './lib/hand-over.mjs';
import { ensureSystem } from './lib/system.mjs';
import { ensureDependencies, ensureNode, main, root } from './lib/toolchain.mjs';

await main(async () => {
  const node = await ensureNode();
  await ensureDependencies(node);
  if (process.platform === 'linux') await ensureSystem(['bubblewrap', 'redis-server', 'chromium', 'docker.io']);
  await handOver(node, [join(root, 'scripts/test.ts'), ...process.argv.slice(2)]);
});
