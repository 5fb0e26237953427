import { spawn } from 'node:child_process';
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type BenchServer, measure, median, type Row, startServer } from './lib.ts';

/** What the other server is made of. It is fetched for the measurement and removed after it; it is no part of this project. */
const PACKAGES = ['@langchain/langgraph-cli@1.5.1', '@langchain/langgraph@1.7.3', '@langchain/core@1.4.0'];
const FETCH_MS = 180_000;
const START_MS = 60_000;

interface Load {
  readonly runsPerSecond: number;
  readonly firstP50: number;
}

const LEVELS = [
  { clients: 1, runs: 10, own: 80 },
  { clients: 16, runs: 60, own: 320 },
] as const;

/**
 * Information: runs per second and time to the first token against LangGraph's JS dev server, on the same graph and model. That server keeps
 * its state in memory, writes it to files now and then, and waits between runs; so this is no contest, only a measure of
 * what somebody sees who comes from there. Needs npm's registry; answers no rows, and says so, where that fails.
 */
export async function langgraphRows(): Promise<Row[]> {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-langgraph-'));
  let theirs: BenchServer | null = null;
  let ours: BenchServer | null = null;
  try {
    theirs = await devServer(folder);
    ours = await startServer('server.ts', ['plain', '20', '0']);
    await measure('load.ts', [ours.url, '4', '100']);
    await measure('load.ts', [theirs.url, '4', '8', '']);
    const rows: Row[] = [];
    for (const { clients, runs, own } of LEVELS) {
      const us: Load[] = [];
      const them: Load[] = [];
      for (let round = 0; round < 2; round += 1) {
        us.push(await measure<Load>('load.ts', [ours.url, String(clients), String(own)]));
        them.push(await measure<Load>('load.ts', [theirs.url, String(clients), String(runs), '']));
      }
      rows.push(...rowsOf(clients, us, them));
    }
    return rows;
  } catch (error) {
    process.stderr.write(`  SKIPPED: no comparison with LangGraph's dev server: ${String(error).slice(0, 500)}\n`);
    return [];
  } finally {
    await theirs?.stop();
    await ours?.stop();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

function rowsOf(clients: number, us: readonly Load[], them: readonly Load[]): Row[] {
  const of = (loads: readonly Load[], key: keyof Load) => median(loads.map((load) => load[key]));
  const row = (name: string, key: keyof Load): Row => ({
    name: `${name}, ${clients} client${clients === 1 ? '' : 's'}, the same plain graph`,
    value: of(us, key) / of(them, key),
    unit: 'ratio',
    against: "LangGraph's JS dev server",
    target: null,
    alarm: null,
    detail: { product: of(us, key), theirs: of(them, key) },
  });
  return [row('runs per second', 'runsPerSecond'), row('time to first token', 'firstP50')];
}

/** Installs and starts the dev server in a folder of its own. @throws when it cannot be had */
async function devServer(folder: string): Promise<BenchServer> {
  const here = join(import.meta.dirname, 'child');
  for (const [from, to] of [
    ['langgraph/agent.ts', 'agent.ts'],
    ['langgraph/langgraph.json', 'langgraph.json'],
    ['model.ts', 'model.ts'],
  ] as const)
    await copyFile(join(here, from), join(folder, to));
  await writeFile(join(folder, 'package.json'), '{"private":true,"type":"module"}\n');
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund', '--fetch-retries=1', '--loglevel', 'error'];
  await run('npm', ['install', ...quiet, ...PACKAGES], folder, FETCH_MS);
  const port = await freePort();
  const cli = join(folder, 'node_modules/.bin/langgraphjs');
  const server = spawn(
    process.execPath,
    [cli, 'dev', '--host', '127.0.0.1', '--port', String(port), '--no-browser', '--config', 'langgraph.json'],
    {
      cwd: folder,
      stdio: 'ignore',
      detached: true,
      env: { ...process.env, LANGGRAPH_CLI_NO_ANALYTICS: '1', LANGSMITH_TRACING: 'false' },
    },
  );
  const over = new Promise<void>((resolve) => server.once('exit', () => resolve()));
  // Its own children end with it: it is the leader of a group.
  const stop = async () => {
    if (server.pid !== undefined && server.exitCode === null) {
      try {
        process.kill(-server.pid, 'SIGKILL');
      } catch {
        // Gone already.
      }
    }
    await over;
  };
  const url = `http://127.0.0.1:${port}`;
  const deadline = performance.now() + START_MS;
  for (;;) {
    const ready = await fetch(`${url}/ok`).then(
      (response) => response.ok,
      () => false,
    );
    if (ready) break;
    if (server.exitCode !== null || performance.now() > deadline) {
      await stop();
      throw new Error('the dev server did not start');
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return { url, stop, figures: async () => ({ cpuMs: 0, delayP99Ms: 0, rssMiB: 0 }) };
}

function run(program: string, args: readonly string[], cwd: string, patienceMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd, stdio: ['ignore', 'ignore', 'pipe'], timeout: patienceMs });
    let words = '';
    child.stderr.on('data', (chunk) => {
      words = (words + chunk).slice(-400);
    });
    child.once('error', reject);
    child.once('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`${program} ${args[0]}: ${words.trim()}`)),
    );
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise<void>((resolve) => server.close(() => resolve()));
  return typeof address === 'object' && address !== null ? address.port : 0;
}
