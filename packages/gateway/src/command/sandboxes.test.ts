import { EventEmitter } from 'node:events';
import { type SandboxLifecycle, ShutdownOwnership } from '@reindeer/protocol';
import { createLifecycleProvider, MemoryOwnershipStore } from '@reindeer/sandbox';
import { NO_STORAGE, SimulatedEngine, testSurroundings } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';
import { program } from './program.ts';

const TOKEN = 'secret-token-of-sixteen';
let fixture: Fixture;
let lifecycle: SandboxLifecycle;
let engine: SimulatedEngine;
let clock: ReturnType<typeof testSurroundings>['clock'];

beforeEach(async () => {
  const surroundings = testSurroundings();
  clock = surroundings.clock;
  engine = new SimulatedEngine(clock);
  lifecycle = createLifecycleProvider({
    backend: { ...engine.backend(), memory: async (infos) => new Map(infos.map(({ id }) => [id, 64 * 1024 ** 2])) },
    ownership: new MemoryOwnershipStore({ ownerId: 'host:1', clock, ttlMs: 120_000 }),
    surroundings,
    storage: NO_STORAGE,
  });
  fixture = await startFixture({
    surroundings,
    sandboxPool: { lifecycle, ownerId: 'host:1' },
    guards: { allowedHosts: [], allowedOrigins: [], token: TOKEN },
  });
});
afterEach(() => fixture.close());

async function reindeer(...words: string[]) {
  const printed: string[] = [];
  const said: string[] = [];
  const code = await program(
    {
      environment: { REINDEER_TOKEN: TOKEN, REINDEER_HOME: '/nowhere' },
      cwd: '/',
      print: async (text) => void printed.push(text),
      say: (text) => void said.push(text),
      interactive: false,
      process: Object.assign(new EventEmitter(), { pid: 1, kill: () => {} }),
      shutdownOwnership: new ShutdownOwnership(),
      exit: () => {},
      entry: import.meta.url,
      version: '0.0.0',
      nodeVersion: process.version,
    },
    ['sandboxes', ...words, '--port', String(fixture.port)],
  );
  return { code, printed: printed.join(''), said: said.join('') };
}

test('lists what the running server keeps, as a table or as JSON', async () => {
  expect((await reindeer('list')).printed).toMatch(/^No sandboxes/);
  const { id } = await lifecycle.acquire({ userId: 'u', threadId: 'thread\u001b[2J' });
  clock.skip(200_000);
  const { code, printed } = await reindeer('list');
  expect(code).toBe(0);
  expect(printed.split('\n')).toEqual([
    'ID                STATE   USER  THREAD      AGE    IDLE   COMMANDS  MEMORY',
    `${id}  active  u     thread?[2J  3 min  3 min  0         64 MiB`,
    '',
  ]);
  expect(JSON.parse((await reindeer('list', '--json')).printed)).toMatchObject({
    sandboxes: [{ id, state: 'active' }],
  });
});

test('stops one: not under somebody who uses it, unless forced', async () => {
  const { id } = await lifecycle.acquire({ userId: 'u', threadId: 't' });
  const refused = await reindeer('stop', id);
  expect(refused.code).toBe(1);
  expect(refused.said).toContain('in use');
  expect(engine.stopped).toEqual([]);
  expect(await reindeer('stop', id, '--force')).toMatchObject({ code: 0, printed: `Stopped ${id}.\n` });
  expect(engine.stopped).toEqual([id]);
  expect((await reindeer('stop', 'no-such')).said).toContain('404');
});

test('prunes what nobody uses', async () => {
  expect(await reindeer('prune')).toMatchObject({ code: 0, printed: 'Nothing to stop.\n' });
  const { id } = await lifecycle.acquire({ userId: 'u', threadId: 't' });
  await lifecycle.release(id);
  expect((await reindeer('prune', '--idle', '60')).printed).toBe('Nothing to stop.\n');
  expect((await reindeer('prune')).printed).toBe(`Stopped: ${id}\n`);
});

test('says where it looked when no server answers', async () => {
  await fixture.close();
  const { code, said } = await reindeer('list');
  expect(code).toBe(1);
  expect(said).toContain(`No server answers at http://127.0.0.1:${fixture.port}`);
});
