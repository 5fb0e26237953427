import { mkdtemp, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SandboxLifecycle } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { createContainerProvider, MemoryOwnershipStore } from '@reindeer/sandbox';
import { dockerMissing, type ThrowawayDocker, throwawayDocker } from '@reindeer/testkit';
import { median, type Row } from './lib.ts';

const root = join(import.meta.dirname, '..');
const COLD = 7;
const WARM = 40;
const TURNS = 40;
const THREADS = 10;
const TURNS_AT_ONCE = 4;

const surroundings = systemSurroundings();

async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

/** Containers: what staying warm saves, and what a command costs; null without an engine, which is said aloud. */
export async function containerRows(): Promise<readonly Row[]> {
  const missing = await dockerMissing();
  if (missing !== null) {
    process.stderr.write(`  skipped: ${missing}\n`);
    return [];
  }
  const docker = await throwawayDocker({
    server: join(root, 'packages/sandbox/src/server/main.ts'),
    launcher: join(root, 'images/sandbox/start.sh'),
  });
  const home = await mkdtemp(join(tmpdir(), 'reindeer-bench-'));
  const provider = await createContainerProvider({
    settings: { image: docker.image, containerPrefix: docker.prefix, engineSocket: docker.socket },
    ownership: new MemoryOwnershipStore({ ownerId: 'bench', clock: surroundings.clock, ttlMs: 60_000 }),
    home,
    surroundings,
    environment: {},
  });
  const thread = { userId: 'default', threadId: 'bench' };
  try {
    const cold: number[] = [];
    for (let turn = 0; turn < COLD; turn += 1) {
      let id = '';
      cold.push(
        await timed(async () => {
          id = (await provider.acquire(thread)).id;
        }),
      );
      if (turn < COLD - 1) await provider.destroy(id);
    }
    const [{ name, id } = { name: '', id: '' }] = provider.list();
    await provider.release(id);
    const warm: number[] = [];
    const ours: number[] = [];
    const engine: number[] = [];
    for (let turn = 0; turn < WARM; turn += 1) {
      const begun = performance.now();
      const sandbox = await provider.acquire(thread);
      warm.push(performance.now() - begun);
      // In turns, so that both meet the same machine.
      ours.push(await timed(() => sandbox.exec({ command: 'echo x', timeoutMs: 30_000 })));
      engine.push(await timed(() => engineExec(docker, name)));
      await provider.release(sandbox.id);
    }
    const turnsMs = await manyTurns(provider);
    await provider.shutdown();
    const left = (await docker.containers()).length + provider.list().length;
    return [
      {
        name: 'container: warm reuse',
        value: median(warm) / median(cold),
        unit: 'ratio',
        against: 'a cold start to the first command',
        target: '<= 0.05',
        alarm: '<= 0.3',
        detail: { warmMs: median(warm), coldMs: median(cold) },
      },
      {
        name: 'container: a command in a warm sandbox',
        value: median(ours) / median(engine),
        unit: 'ratio',
        against: 'exec of the engine’s API',
        target: '<= 1',
        alarm: '<= 2',
        detail: { oursMs: median(ours), engineMs: median(engine) },
      },
      {
        name: `container: a turn of ${TURNS} on ${THREADS} threads over three places`,
        value: turnsMs / median(cold),
        unit: 'ratio',
        against: 'a cold start',
        target: null,
        alarm: null,
        detail: { turnMs: turnsMs },
      },
      {
        // A thousand turns on a hundred threads over a simulated engine: rows-sandbox.ts, and as a test lifecycle/cycles.test.ts.
        name: 'container: left behind by them after the stop',
        value: left,
        unit: 'containers',
        against: 'nothing',
        target: '<= 0',
        alarm: '<= 0',
      },
    ];
  } finally {
    await provider.shutdown();
    await docker.stop();
    await rm(home, { recursive: true, force: true });
  }
}

/** Turns of many threads that give their places up to one another; milliseconds per turn and lane. */
async function manyTurns(provider: SandboxLifecycle): Promise<number> {
  const times: number[] = [];
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let turn = next++; turn < TURNS; turn = next++) {
      const begun = performance.now();
      const sandbox = await provider.acquire({ userId: 'default', threadId: `turns-${turn % THREADS}` });
      const { exitCode } = await sandbox.exec({ command: 'true', timeoutMs: 30_000 });
      if (exitCode !== 0) throw new Error('A command failed.');
      await provider.release(sandbox.id);
      times.push(performance.now() - begun);
    }
  };
  await Promise.all(Array.from({ length: TURNS_AT_ONCE }, lane));
  return median(times);
}

/** The same command by the engine: made, started, its output read to the end, its exit code asked for. */
async function engineExec(docker: ThrowawayDocker, container: string): Promise<void> {
  const made = await docker.ask('POST', `/containers/${container}/exec`, {
    AttachStdout: true,
    AttachStderr: true,
    Cmd: ['bash', '-c', 'echo x'],
  });
  const { Id } = made.body as { readonly Id: string };
  const output = await new Promise<string>((resolve, reject) => {
    const body = JSON.stringify({ Detach: false, Tty: false });
    const headers = { 'content-type': 'application/json', 'content-length': body.length };
    const call = request(
      { socketPath: docker.socket, method: 'POST', path: `/exec/${Id}/start`, headers },
      (response) => {
        let text = '';
        response.on('data', (part: Buffer) => {
          text += part.toString('latin1');
        });
        response.once('end', () => resolve(text));
        response.once('error', reject);
      },
    );
    call.once('error', reject);
    call.end(body);
  });
  if (!output.includes('x\n')) throw new Error(`exec said ${JSON.stringify(output)}`);
  await docker.ask('GET', `/exec/${Id}/json`);
}
