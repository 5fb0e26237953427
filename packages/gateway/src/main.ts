import { ShutdownOwnership } from '@reindeer/protocol';
import { program } from './command/program.ts';
import { useCompileCache } from './compile-cache.ts';
import { VERSION } from './version.ts';

/** How long after the last step something may still keep the process alive before it is said and the process left. */
const LINGER_MS = 5_000;

await useCompileCache(import.meta.url);

for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});

const code = await program(
  {
    environment: process.env,
    cwd: process.cwd(),
    // Called back also when nobody reads any more: a closed pipe must neither hold up nor stop the program.
    print: (text) => new Promise((resolve) => process.stdout.write(text, () => resolve())),
    say: (text) => {
      process.stderr.write(text);
    },
    interactive: process.stderr.isTTY === true,
    process,
    shutdownOwnership: new ShutdownOwnership(),
    exit: (exitCode) => process.exit(exitCode),
    entry: import.meta.url,
    version: VERSION,
    nodeVersion: process.version,
  },
  process.argv.slice(2),
);
process.exitCode = code;
setTimeout(() => {
  process.stderr.write(`reindeer: something keeps the process alive: ${process.getActiveResourcesInfo().join(', ')}\n`);
  process.exit(code === 0 ? 1 : code);
}, LINGER_MS).unref();
