// Runs a program of the project under Node 24: node scripts/run.mjs FILE [arguments]
import { join } from 'node:path';
import { handOver } from './lib/hand-over.mjs';
import { ensureDependencies, ensureNode, main, root } from './lib/toolchain.mjs';

await main(async () => {
  const node = await ensureNode();
  await ensureDependencies(node);
  const [file, ...args] = process.argv.slice(2);
  await handOver(node, [join(root, file), ...args]);
});
