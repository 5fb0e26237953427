import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { measure, median, type Row } from './lib.ts';

const root = join(import.meta.dirname, '..');

export async function sandboxRow(): Promise<Row | null> {
  const { ours, bare, reason } = await measure<{ ours: number[]; bare: number[]; reason: string | null }>(
    'sandbox.ts',
    ['40'],
  );
  if (ours.length === 0) {
    process.stderr.write(`  not measured: commands cannot run here (${reason})\n`);
    return null;
  }
  return {
    name: 'bubblewrap: acquire to the end of the first command',
    value: median(ours) / median(bare),
    unit: 'ratio',
    against: 'a bare bwrap start',
    target: '<= 1.8',
    alarm: '<= 5',
    detail: { oursMs: median(ours), bareMs: median(bare) },
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Milliseconds from the start of the process to a healthy answer; and its resident memory a second later. */
async function boot(
  args: readonly string[],
  port: number,
  environment: Record<string, string>,
): Promise<{ ms: number; rssMiB: number }> {
  const begun = performance.now();
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, ...environment },
  });
  try {
    for (;;) {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}`);
      const healthy = await fetch(`http://127.0.0.1:${port}/health`).then(
        (response) => response.ok,
        () => false,
      );
      if (healthy) break;
      if (performance.now() - begun > 30_000) throw new Error('the server did not become healthy within 30 s');
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    const ms = performance.now() - begun;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
    return { ms, rssMiB: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024 };
  } finally {
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }
}

export async function bootRows(): Promise<Row[]> {
  const { rolldown } = await import('rolldown');
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-bench-'));
  const floorFile = join(folder, 'floor.mjs');
  const bundle = await rolldown({
    input: join(root, 'bench/child/boot-floor.mjs'),
    platform: 'node',
    cwd: root,
    logLevel: 'silent',
  });
  await bundle.write({ file: floorFile, format: 'esm' });
  await bundle.close();
  const ours: { ms: number; rssMiB: number }[] = [];
  const floor: { ms: number; rssMiB: number }[] = [];
  for (let round = 0; round < 5; round += 1) {
    const port = await freePort();
    floor.push(await boot([floorFile], port, { PORT: String(port) }));
    const ourPort = await freePort();
    ours.push(
      await boot([join(root, 'dist/server/main.js'), 'serve', '--port', String(ourPort)], ourPort, {
        REINDEER_HOME: join(folder, `home-${round}`),
      }),
    );
  }
  await rm(folder, { recursive: true, force: true });
  const ms = median(ours.map((one) => one.ms));
  const floorMs = median(floor.map((one) => one.ms));
  return [
    {
      name: 'boot to /health',
      value: ms / floorMs,
      unit: 'ratio',
      against: 'an empty bundled Hono server',
      target: '<= 6',
      alarm: '<= 15',
      detail: { ms, floorMs },
    },
    {
      name: 'idle memory',
      value: median(ours.map((one) => one.rssMiB)),
      unit: 'MiB',
      against: 'nothing',
      target: '<= 150',
      alarm: '<= 300',
    },
  ];
}
