// Bundles the server and the page into dist/, only when something changed since the last build.
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, glob, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';

const root = join(import.meta.dirname, '..');
const dist = join(root, 'dist');

/** Everything that ends up in the bundles: a change of a size or time of any of it means a new build. */
async function fingerprint(): Promise<string> {
  const hash = createHash('sha256').update(process.version);
  const files: string[] = [];
  for await (const file of glob(
    '{package-lock.json,packages/*/package.json,packages/*/src/**/*,packages/web/*,scripts/build.ts}',
    { cwd: root },
  ))
    files.push(file);
  for (const file of files.sort()) {
    const info = await stat(join(root, file));
    if (info.isFile() && !/\.test\.tsx?$/.test(file)) hash.update(`${file}\0${info.size}\0${info.mtimeMs}\n`);
  }
  return hash.digest('hex');
}

/** Worker threads start from a file of their own: `database/src/sqlite/worker.ts` → `database-worker.js`. They are the ones with a parent port. */
async function workerEntries(): Promise<Record<string, string>> {
  const entries: Record<string, string> = {};
  for await (const file of glob('packages/*/src/**/{worker,*-worker}.ts', { cwd: root })) {
    if (!(await readFile(join(root, file), 'utf8')).includes('parentPort')) continue;
    const name = `${file.split('/')[1]}-${basename(file, '.ts')}`;
    if (entries[name] !== undefined)
      throw new Error(`two workers would be called ${name}.js: ${entries[name]} and ${file}`);
    entries[name] = join(root, file);
  }
  return entries;
}

async function buildServer(): Promise<void> {
  const { rolldown } = await import('rolldown');
  const bundle = await rolldown({
    input: { main: join(root, 'packages/gateway/src/main.ts'), ...(await workerEntries()) },
    platform: 'node',
    cwd: root,
    logLevel: 'warn',
    // Loaded only where they are installed.
    external: [/^@opentelemetry\//, 'langsmith/experimental/otel/setup', 'pg', 'redis'],
    transform: { target: 'node24' },
    treeshake: true,
  });
  await bundle.write({
    dir: join(dist, 'server'),
    format: 'esm',
    sourcemap: true,
    // The texts are in the project; twice of them is read at every start.
    sourcemapExcludeSources: true,
    minify: false,
    entryFileNames: '[name].js',
    chunkFileNames: 'chunks/[name]-[hash].js',
  });
  await bundle.close();
  await writeFile(join(dist, 'server/package.json'), '{"type":"module"}\n');
}

/**
 * Starts the bundled server once, so that what Node compiled of it is kept beside it (`gateway/src/compile-cache.ts`) and the first real start is
 * as fast as every other. It sees nothing of this machine's configuration. Where it cannot run, starts compile as ever.
 */
async function compileServer(): Promise<void> {
  await mkdir(join(dist, 'compiled'));
  const home = await mkdtemp(join(tmpdir(), 'reindeer-build-'));
  try {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    execFile(
      process.execPath,
      [join(dist, 'server/main.js'), 'serve', '--check'],
      { cwd: home, env: { PATH: process.env.PATH, REINDEER_HOME: home }, timeout: 60_000 },
      () => resolve(),
    );
    await ended;
  } finally {
    await rm(home, { recursive: true, force: true });
  }
}

/** The server in a sandbox: one file without dependencies, for `images/sandbox/Dockerfile`. */
async function buildSandboxServer(): Promise<void> {
  const { rolldown } = await import('rolldown');
  const bundle = await rolldown({
    input: join(root, 'packages/sandbox/src/server/main.ts'),
    platform: 'node',
    cwd: root,
    logLevel: 'warn',
    treeshake: true,
  });
  await bundle.write({ file: join(dist, 'sandbox/server.mjs'), format: 'esm', codeSplitting: false });
  await bundle.close();
}

async function buildPage(): Promise<void> {
  const { build } = await import('vite');
  await build({
    configFile: join(root, 'packages/web/vite.config.ts'),
    root: join(root, 'packages/web'),
    logLevel: 'warn',
  });
}

const { values } = parseArgs({ options: { force: { type: 'boolean' } } });
const stamp = join(dist, 'stamp');
const now = await fingerprint();
if (values.force !== true && (await readFile(stamp, 'utf8').catch(() => '')) === now) {
  process.stdout.write('dist is up to date\n');
} else {
  const begun = performance.now();
  process.stderr.write('· building …\n');
  await rm(dist, { recursive: true, force: true });
  await mkdir(dist, { recursive: true });
  await Promise.all([buildServer().then(compileServer), buildSandboxServer(), buildPage()]);
  await copyFile(join(root, 'LICENSE'), join(dist, 'LICENSE'));
  await writeFile(stamp, now);
  process.stdout.write(`built dist in ${((performance.now() - begun) / 1000).toFixed(1)} s\n`);
}
