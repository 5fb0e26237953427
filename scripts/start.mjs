// npm start: installs what is missing, builds, serves. Arguments after `--` go to `reindeer serve`.
import { join } from 'node:path';
import { handOver } from './lib/hand-over.mjs';
import { ensureSystem } from './lib/system.mjs';
import { ensureDependencies, ensureNode, Impossible, main, root, run } from './lib/toolchain.mjs';

await main(async () => {
  const node = await ensureNode();
  await ensureDependencies(node);
  if (process.platform === 'linux') await ensureSystem(['bubblewrap']);
  const build = await run(node, [join(root, 'scripts/build.ts')]);
  if (build.code !== 0) throw new Impossible(`The build failed:\n${build.output}`);
  await handOver(node, ['--enable-source-maps', join(root, 'dist/server/main.js'), 'serve', ...process.argv.slice(2)]);
});
