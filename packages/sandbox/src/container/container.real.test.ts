import { createHash, randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { createServer } from 'node:net';
import { Readable } from 'node:stream';
import {
  type OwnershipStore,
  ReindeerError,
  type Sandbox,
  type SandboxBackend,
  type SandboxLifecycle,
} from '@reindeer/protocol';
import {
  dockerMissing,
  realClock,
  realSurroundings,
  SANDBOX_CONTRACT_LIMITS,
  sandboxContract,
  verifies,
  waitUntil,
  withEventLoopGate,
} from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { createLifecycleProvider } from '../lifecycle/index.ts';
import { MemoryOwnershipStore } from '../lifecycle/ownership/memory-store.ts';
import { createContainerProvider } from './factory.ts';
import { containerScene } from './testing/scene.ts';

const scene = containerScene();
let made: Promise<SandboxLifecycle> | null = null;
let provider: SandboxLifecycle | null = null;

sandboxContract('container', {
  missing: dockerMissing,
  acquire: async (threadId) => {
    made ??= scene().provider({ settings: SANDBOX_CONTRACT_LIMITS });
    provider = await made;
    return provider.acquire({ userId: 'default', threadId });
  },
  files: (threadId) => {
    if (provider === null) throw new Error('Acquire first.');
    return provider.files({ userId: 'default', threadId });
  },
});

let number = 0;
/** A thread that no other test uses. */
function newThread(): { readonly userId: string; readonly threadId: string } {
  number += 1;
  return { userId: 'default', threadId: `thread-${number}` };
}

async function out(sandbox: Sandbox, command: string): Promise<string> {
  return (await sandbox.exec({ command, timeoutMs: 20_000 })).output.trim();
}

function nameOf(provider: SandboxLifecycle, sandbox: Sandbox): string {
  return provider.list().find(({ id }) => id === sandbox.id)?.name ?? '';
}

async function engineId(name: string): Promise<string | null> {
  const { status, body } = await scene().docker.ask('GET', `/containers/${name}/json`);
  return status === 200 ? (body as { Id: string }).Id : null;
}

test('acquire, work, release, reuse with the same files, idle reap', async () => {
  const provider = await scene().provider({ lifecycle: { idleTimeoutMs: 1 } });
  const thread = newThread();
  const sandbox = await provider.acquire(thread);
  const name = nameOf(provider, sandbox);
  const first = await engineId(name);
  expect(await out(sandbox, 'echo kept > kept.txt; echo also > /tmp/also; cat kept.txt')).toBe('kept');
  await provider.release(sandbox.id);
  expect(provider.list()).toMatchObject([{ phase: 'warm', name }]);

  const again = await provider.acquire(thread);
  expect([again.id, await engineId(name)]).toEqual([sandbox.id, first]);
  expect(await out(again, 'cat kept.txt /tmp/also')).toBe('kept\nalso');
  await provider.release(again.id);

  const reaped = async () => {
    await provider.reap();
    return provider.list().length === 0;
  };
  await waitUntil(reaped, 10_000, () => 'the idle container was not reaped');
  expect(await engineId(name)).toBeNull();
  const fresh = await provider.acquire(thread);
  expect(await out(fresh, 'cat kept.txt')).toBe('kept');
  expect(await engineId(name)).not.toBe(first);
  expect(Buffer.from(await fresh.files.read('kept.txt', { maxBytes: 100 })).toString()).toBe('kept\n');
});

test('the report says what is enforced, and labels say whose it is', async () => {
  const provider = await scene().provider();
  expect(provider.report()).toMatchObject({ provider: 'container', canExecute: true, network: 'none' });
  const sandbox = await provider.acquire(newThread());
  const { body } = await scene().docker.ask('GET', `/containers/${nameOf(provider, sandbox)}/json`);
  expect(body).toMatchObject({
    Config: { Labels: { 'reindeer.user': 'default', 'reindeer.thread': `thread-${number}` } },
    HostConfig: {
      // Podman names them all; that none is left, the contract sees from inside.
      CapDrop: expect.arrayContaining([expect.stringMatching(/^(ALL|CHOWN)$/)]),
      Privileged: false,
      ReadonlyRootfs: true,
      NetworkMode: 'none',
      Memory: 2 * 1024 ** 3,
      MemorySwap: 2 * 1024 ** 3,
      NanoCpus: 2e9,
      PidsLimit: 512,
      AutoRemove: true,
    },
    NetworkSettings: { Ports: {} },
  });
  // No secret in what anybody who may ask the engine can read, and none for commands to find.
  const secret = /[0-9a-f]{64}/;
  const { Config } = body as { Config: { Env: string[]; Cmd: unknown; Labels: Record<string, string> } };
  expect(JSON.stringify([Config.Env, Config.Cmd, Config.Labels])).not.toMatch(secret);
  expect(await out(sandbox, 'env; ls /run/reindeer; cat /run/reindeer/secret; cat /proc/*/cmdline')).not.toMatch(
    secret,
  );
});

test('no network: neither a socket nor the host’s ports', async () => {
  const provider = await scene().provider();
  const sandbox = await provider.acquire(newThread());
  const server = createServer((socket) => socket.end('reached'));
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  try {
    for (const host of ['127.0.0.1', '10.200.0.1', '1.1.1.1'])
      expect(await out(sandbox, `(exec 3<>/dev/tcp/${host}/${port}) 2>/dev/null && echo REACHED || echo refused`)).toBe(
        'refused',
      );
    expect(await out(sandbox, 'tail -n +3 /proc/net/dev | cut -d: -f1')).toBe('lo');
  } finally {
    server.close();
  }
});

test('what is written anywhere counts: no folder is a way around the disk limit', async () => {
  const provider = await scene().provider({ settings: { diskBytes: 32 * 1024 * 1024 } });
  const sandbox = await provider.acquire(newThread());
  const places =
    'find / -xdev -type d -writable 2>/dev/null; for d in /run/reindeer /tmp /dev/shm; do [ -w $d ] && echo $d; done';
  const writable = new Set((await out(sandbox, places)).split('\n').filter((path) => !path.startsWith('/proc')));
  const user = ['/mnt/user-data/workspace', '/mnt/user-data/outputs'];
  const known = [...user, '/run/reindeer', '/tmp', '/var/tmp', '/dev/shm'];
  expect([...writable].filter((path) => path !== '' && !known.includes(path))).toEqual([]);
  for (const place of ['/run/reindeer', '/tmp', '/var/tmp']) {
    const fill = `for n in $(seq 50); do head -c 4M /dev/zero > ${place}/fill$n || break; done; sleep 20`;
    expect(await sandbox.exec({ command: fill, timeoutMs: 30_000 }), place).toMatchObject({
      ended: 'limit',
      limit: 'disk',
    });
    await out(sandbox, `rm -f ${place}/fill*`);
  }
  // Shared memory has a size of its own, and counts as memory.
  const shared = 'for n in $(seq 50); do head -c 4M /dev/zero > /dev/shm/x$n 2>/dev/null || break; done; echo $n';
  expect(Number(await out(sandbox, shared))).toBeLessThanOrEqual(17);
});

test('a container that was removed under us is replaced, active or warm', verifies('SX-01', 'SB-20'), async () => {
  const provider = await scene().provider();
  const thread = newThread();
  const sandbox = await provider.acquire(thread);
  const name = nameOf(provider, sandbox);
  await out(sandbox, 'echo kept > kept.txt');
  await scene().docker.ask('DELETE', `/containers/${name}?force=true`);
  await expect(out(sandbox, 'true')).rejects.toMatchObject({ code: 'sandbox_unavailable', retryable: true });
  const next = await provider.acquire(thread);
  expect(await out(next, 'cat kept.txt')).toBe('kept');

  await provider.release(next.id);
  await scene().docker.ask('DELETE', `/containers/${name}?force=true`);
  expect(await out(await provider.acquire(thread), 'cat kept.txt')).toBe('kept');
});

test('a container that the kernel ended for want of memory is replaced', async () => {
  const provider = await scene().provider({ settings: { memoryBytes: 96 * 1024 * 1024 } });
  const thread = newThread();
  const sandbox = await provider.acquire(thread);
  const name = nameOf(provider, sandbox);
  const before = await engineId(name);
  // The server offers itself as the first victim, and the hog as the last.
  const hog =
    'echo kept > kept.txt; for p in /proc/[0-9]*; do case "$(tr "\\0" " " < $p/cmdline)" in node*) echo 1000 > $p/oom_score_adj;; esac; done; ' +
    'echo 0 > /proc/self/oom_score_adj; text=0123456789abcdef; while :; do text=$text$text; done';
  await expect(sandbox.exec({ command: hog, timeoutMs: 20_000 })).rejects.toMatchObject({
    code: 'sandbox_unavailable',
  });
  const next = await provider.acquire(thread);
  expect(await out(next, 'cat kept.txt')).toBe('kept');
  expect(await engineId(name)).not.toBe(before);
});

test('a container whose server hangs is replaced', async () => {
  const { backend, storage } = await scene().parts({ probeMs: 300 });
  const provider = createLifecycleProvider({
    backend,
    storage,
    ownership: scene().store(),
    surroundings: realSurroundings(),
  });
  const thread = newThread();
  const sandbox = await provider.acquire(thread);
  const name = nameOf(provider, sandbox);
  const before = await engineId(name);
  await out(sandbox, 'echo kept > kept.txt');
  const [server] = await scene().processes(name, 'server.mjs');
  if (server === undefined) throw new Error('no server found');
  process.kill(server, 'SIGSTOP');
  const next = await provider.acquire(thread);
  expect(await out(next, 'cat kept.txt')).toBe('kept');
  expect(await engineId(name)).not.toBe(before);
  await provider.shutdown();
  expect(await engineId(name)).toBeNull();
});

test('a server that never comes up is taken back, whatever was started', verifies('SX-11'), async () => {
  const { docker } = scene();
  const { backend, storage } = await scene().parts();
  const half = createLifecycleProvider({
    backend: withMethods(backend, {
      create: async (input) => {
        const made = await backend.create(input);
        await docker.ask('POST', `/containers/${made.info.name}/pause`);
        return made;
      },
    }),
    storage,
    ownership: scene().store(),
    surroundings: realSurroundings(),
    settings: { readyMs: 700 },
  });
  const before = await docker.containers();
  const began = performance.now();
  await expect(half.acquire(newThread())).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  // The probe that hangs is cut at the deadline, not at its own bound.
  expect(performance.now() - began).toBeLessThan(5_000);
  expect(await docker.containers()).toEqual(before);
  await half.shutdown();
});

test('a name that a live container has is taken over, a dead one makes way', verifies('SX-06'), async () => {
  const { backend, storage } = await scene().parts();
  const thread = newThread();
  await storage.prepare(thread);
  const id = `conflict${number}`;
  const first = await backend.create({ id, ...thread });
  expect(first.outcome).toBe('created');
  expect(await backend.ready(first.info, { withinMs: 20_000 })).toBe(true);
  const second = await backend.create({ id, ...thread });
  expect([second.outcome, second.info]).toEqual(['existing', first.info]);
  expect(await backend.isAlive(first.info)).toBe(true);

  // One that ended and was left, as after a crash of the engine.
  const { docker } = scene();
  const { body } = await docker.ask('GET', `/containers/${first.info.name}/json`);
  await backend.stop(first.info);
  expect(await backend.isAlive(first.info)).toBe(false);
  const { Labels } = (body as { Config: { Labels: Record<string, string> } }).Config;
  const left = { Image: docker.image, Entrypoint: ['/bin/true'], Labels, HostConfig: { NetworkMode: 'none' } };
  await docker.ask('POST', `/containers/create?name=${first.info.name}`, left);
  await docker.ask('POST', `/containers/${first.info.name}/start`);
  await docker.ask('POST', `/containers/${first.info.name}/wait`);
  const third = await backend.create({ id, ...thread });
  expect(third.outcome).toBe('created');
  expect(await backend.ready(third.info, { withinMs: 20_000 })).toBe(true);
  await backend.stop(third.info);
  await backend.stop(third.info);
  expect(await engineId(third.info.name)).toBeNull();
});

test('of two creates at once one makes the container and the other finds it', verifies('SX-06'), async () => {
  const [a, b] = await Promise.all([scene().parts(), scene().parts()]);
  const thread = newThread();
  await a.storage.prepare(thread);
  const input = { id: `twice${number}`, ...thread };
  const made = await Promise.all([a.backend.create(input), b.backend.create(input)]);
  expect(made.map(({ outcome }) => outcome).sort()).toEqual(['created', 'existing']);
  expect(made[0]?.info).toEqual(made[1]?.info);
  await a.backend.stop(made[0].info);
});

test('a name of another data folder is neither used nor touched', async () => {
  const mine = await scene().parts();
  const other = await scene().parts({ home: `${scene().home}/other` });
  const thread = newThread();
  await mine.storage.prepare(thread);
  await other.storage.prepare(thread);
  const id = `foreign${number}`;
  const { info } = await mine.backend.create({ id, ...thread });
  expect(await mine.backend.ready(info, { withinMs: 20_000 })).toBe(true);
  await expect(other.backend.create({ id, ...thread })).rejects.toMatchObject({ code: 'configuration' });
  expect(await other.backend.discover(id)).toBeNull();
  expect((await other.backend.listRunning()).map((one) => one.id)).not.toContain(id);
  expect((await mine.backend.listRunning()).map((one) => one.id)).toContain(id);
  expect(await mine.backend.isAlive(info)).toBe(true);
  await mine.backend.stop(info);
});

test('by a published port of the loopback, past ports that are taken', verifies('SX-07', 'SX-03'), async (context) => {
  const { docker } = scene();
  if (!docker.bridge) context.skip('this engine has no network');
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  const address = taken.address();
  const busy = typeof address === 'object' && address !== null ? address.port : 0;
  const asked: number[] = [];
  const { backend, storage } = await scene().parts({
    settings: { transport: 'port', network: 'bridge' },
    hostPort: (attempt) => {
      asked.push(attempt);
      return attempt < 2 ? busy : 0;
    },
  });
  try {
    const thread = newThread();
    await storage.prepare(thread);
    const { info } = await backend.create({ id: `port${number}`, ...thread });
    expect(asked).toEqual([0, 1, 2]);
    expect(info.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect(await backend.ready(info, { withinMs: 20_000 })).toBe(true);
    const client = backend.connect(info, thread);
    expect(await out(client, 'echo over the port')).toBe('over the port');
    // Whoever else finds the port is not let in.
    const stranger = await fetch(`${info.url}/v1/sandbox`, { headers: { authorization: 'Bearer guess' } });
    expect(stranger.status).toBe(401);
    expect((await backend.listRunning()).find((one) => one.id === info.id)?.url).toBe(info.url);
    await client.close();
    await backend.stop(info);
  } finally {
    taken.close();
  }
});

test('bytes are the same on both sides, up to 100 MB', async () => {
  const provider = await scene().provider();
  const thread = newThread();
  const sandbox = await provider.acquire(thread);
  const bytes = randomBytes(100 * 1024 * 1024);
  const hash = createHash('sha256').update(bytes).digest('hex');
  const limits = { maxBytes: bytes.length, overwrite: false };
  await sandbox.files.writeStream('big.bin', Readable.from([bytes]), limits);
  expect(await out(sandbox, 'sha256sum < big.bin; cp big.bin /mnt/user-data/outputs/copy.bin')).toBe(`${hash}  -`);
  const back = createHash('sha256');
  const { stream } = await sandbox.files.openRead('/mnt/user-data/outputs/copy.bin');
  for await (const part of stream) back.update(part);
  expect(back.digest('hex')).toBe(hash);
  await out(sandbox, 'rm big.bin /mnt/user-data/outputs/copy.bin');
});

test(
  'files outside the thread are refused, and a client closes without a word',
  verifies('SX-17', 'SX-18'),
  async () => {
    const { backend, storage } = await scene().parts();
    const thread = newThread();
    await storage.prepare(thread);
    const { info } = await backend.create({ id: `close${number}`, ...thread });
    expect(await backend.ready(info, { withinMs: 20_000 })).toBe(true);
    const client = backend.connect(info, thread);
    for (const path of ['/etc/passwd', '../../../etc/passwd', '/mnt/user-data/../etc/passwd', '/mnt/user-data2/x'])
      await expect(client.files.read(path, { maxBytes: 100 }), path).rejects.toMatchObject({ code: 'path_refused' });
    await client.files.writeStream('big', Readable.from([Buffer.alloc(101)]), { maxBytes: 101, overwrite: true });
    await expect(client.files.read('big', { maxBytes: 100 })).rejects.toMatchObject({ code: 'too_large' });
    await backend.stop(info);
    await Promise.all([client.close(), client.close()]);
    await client.close();
    await expect(out(client, 'true')).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  },
);

test('acquire, exec and release leave the loop free', verifies('SL-25', 'SB-25'), async () => {
  const provider = await scene().provider();
  const thread = newThread();
  await withEventLoopGate(async () => {
    for (let turn = 0; turn < 2; turn += 1) {
      const sandbox = await provider.acquire(thread);
      await sandbox.exec({ command: 'seq 20000', timeoutMs: 20_000 });
      await provider.release(sandbox.id);
    }
    await provider.shutdown();
  });
});

test(
  'two gateways: one container, taken over by use, never stopped by the peer',
  verifies('SB-06', 'SB-65', 'SB-64'),
  async () => {
    const lifecycle = { idleTimeoutMs: 1 };
    const [a, b] = [await scene().provider({ lifecycle }), await scene().provider({ lifecycle })];
    const thread = newThread();
    const [first, second] = await Promise.all([a.acquire(thread), a.acquire(thread)]);
    const name = nameOf(a, first);
    const id = await engineId(name);
    expect(second.id).toBe(first.id);
    await b.reconcile();
    await b.reap();
    expect([b.list(), await engineId(name)]).toEqual([[], id]);

    const moved = await b.acquire(thread);
    expect(await out(moved, 'echo here')).toBe('here');
    expect([nameOf(b, moved), await engineId(name)]).toEqual([name, id]);
    await a.renew();
    expect([a.list(), await engineId(name)]).toEqual([[], id]);
    await a.shutdown();
    expect(await out(moved, 'echo still')).toBe('still');
  },
);

test(
  'turns that move between two gateways, while both reap, reconcile and renew all the time',
  verifies('SB-06', 'SB-64', 'SB-65'),
  async () => {
    const lifecycle = { idleTimeoutMs: 200 };
    const gateways = [await scene().provider({ lifecycle }), await scene().provider({ lifecycle })];
    let over = false;
    const sweeping = gateways.map(async (gateway) => {
      let passes = 0;
      while (!over) {
        await Promise.all([gateway.reap(), gateway.reconcile(), gateway.renew()]);
        await realClock.sleep(5);
        passes += 1;
      }
      return passes;
    });
    const turns = 6;
    const threads = [newThread(), newThread(), newThread()];
    const lines = await Promise.all(
      threads.map(async (thread, lane) => {
        const seen: string[] = [];
        for (let turn = 1; turn <= turns; turn += 1) {
          // Each thread is in one gateway's hands at a time, and goes to the other one now and then.
          const gateway = gateways[(turn * (lane + 1)) % 3 === 0 ? 1 : 0];
          if (gateway === undefined) throw new Error('no gateway');
          const sandbox = await patiently(() => gateway.acquire(thread));
          // Longer than the idle timeout: only that the command runs says that the sandbox is in use.
          seen.push(await out(sandbox, `echo ${turn} >> log; sleep 0.3; wc -l < log`));
          await gateway.release(sandbox.id);
          if (turn % 4 === lane) await realClock.sleep(250);
        }
        return seen;
      }),
    );
    over = true;
    for (const passes of await Promise.all(sweeping)) expect(passes).toBeGreaterThan(10);
    expect(lines).toEqual(threads.map(() => Array.from({ length: turns }, (_, at) => String(at + 1))));
    await Promise.all(gateways.map((gateway) => gateway.shutdown()));
  },
);

test('what a killed gateway left is adopted and used by its thread', verifies('SB-55'), async () => {
  const { backend, storage } = await scene().parts();
  const thread = newThread();
  // A gateway that is never shut down, as after a kill.
  const dead = createLifecycleProvider({
    backend,
    storage,
    ownership: scene().store(),
    surroundings: realSurroundings(),
  });
  const left = await dead.acquire(thread);
  const name = nameOf(dead, left);
  const id = await engineId(name);
  // Its leases ran out: the next one has a store of its own, and sees nobody.
  const next = await createContainerProvider({
    settings: {
      image: scene().docker.image,
      containerPrefix: scene().docker.prefix,
      engineSocket: scene().docker.socket,
    },
    ownership: aloneStore(),
    home: scene().home,
    surroundings: realSurroundings(),
    environment: {},
  });
  await next.start();
  expect(next.list().find((one) => one.id === left.id)).toMatchObject({ phase: 'warm', identity: null });
  const sandbox = await next.acquire(thread);
  expect([sandbox.id, await engineId(name), await out(sandbox, 'echo mine')]).toEqual([left.id, id, 'mine']);
  await next.shutdown();
  expect(await engineId(name)).toBeNull();
});

test(
  'an engine that is down is unknown, not dead; once it is back the same thread works on',
  verifies('SX-01', 'SX-02', 'SX-04', 'SB-58'),
  async (context) => {
    const { docker } = scene();
    if (!docker.own) context.skip('this engine is not ours to stop');
    const { backend, storage } = await scene().parts();
    const provider = createLifecycleProvider({
      backend,
      storage,
      ownership: scene().store(),
      surroundings: realSurroundings(),
    });
    const thread = newThread();
    const sandbox = await provider.acquire(thread);
    const [info] = (await backend.listRunning()).filter((one) => one.id === sandbox.id);
    if (info === undefined) throw new Error('not listed');
    await out(sandbox, 'echo kept > kept.txt');
    await docker.halt();
    await expect(backend.isAlive(info)).rejects.toMatchObject({
      code: 'sandbox_unavailable',
      message: expect.stringContaining('Is it running?'),
    });
    await expect(backend.stop(info)).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect([await backend.discover(sandbox.id), await backend.listRunning()]).toEqual([null, []]);
    await provider.reconcile();
    await provider.reap();
    expect(provider.list().map(({ id }) => id)).toContain(sandbox.id);
    await expect(provider.acquire(newThread())).rejects.toMatchObject({ code: 'sandbox_unavailable', retryable: true });
    const late = await createContainerProvider({
      settings: { engineSocket: docker.socket, image: docker.image, containerPrefix: docker.prefix },
      ownership: scene().store(),
      home: scene().home,
      surroundings: realSurroundings(),
      environment: {},
    });
    expect(late.report()).toMatchObject({ canExecute: false, reason: expect.stringContaining('does not answer') });

    await docker.restart();
    expect(await out(await provider.acquire(thread), 'cat kept.txt')).toBe('kept');
    const other = await late.acquire(newThread());
    expect([await out(other, 'echo ok'), late.report().canExecute]).toEqual(['ok', true]);
    await late.shutdown();
    await provider.shutdown();
  },
);

test('nothing is left: no container, no private folder, whatever was done', async () => {
  const { backend, storage } = await scene().parts({ home: `${scene().home}/clean` });
  const provider = createLifecycleProvider({
    backend,
    storage,
    ownership: scene().store(),
    surroundings: realSurroundings(),
  });
  const threads = [newThread(), newThread(), newThread()];
  for (let turn = 0; turn < 5; turn += 1)
    await Promise.all(
      threads.map(async (thread) => {
        const sandbox = await provider.acquire(thread);
        await sandbox.exec({ command: 'echo x', timeoutMs: 20_000 });
        await provider.release(sandbox.id);
      }),
    );
  const names = provider.list().map(({ name }) => name);
  expect(names.length).toBe(3);
  await provider.shutdown();
  for (const name of names) expect(await engineId(name)).toBeNull();
  for (const { threadId } of threads)
    expect(await readdir(`${scene().home}/clean/users/default/threads/${threadId}/run`)).toEqual([]);
});

/** A stop by a peer that is under way is told, and over in a moment; whoever wants the sandbox then asks again. */
const MOMENTARY: readonly unknown[] = ['being_destroyed', 'not_ready'];

async function patiently<T>(work: () => Promise<T>): Promise<T> {
  for (const deadline = performance.now() + 20_000; ; ) {
    try {
      return await work();
    } catch (error) {
      const told = ReindeerError.is(error) && error.retryable && MOMENTARY.includes(error.detail?.reason);
      if (!told || performance.now() > deadline) throw error;
      await realClock.sleep(20);
    }
  }
}

/** The backend with some methods replaced. */
function withMethods(backend: SandboxBackend, methods: Partial<SandboxBackend>): SandboxBackend {
  return new Proxy(backend, {
    get: (target, key) => {
      const replaced: unknown = Reflect.get(methods, key);
      if (replaced !== undefined) return replaced;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

function aloneStore(): OwnershipStore {
  return new MemoryOwnershipStore({ ownerId: 'alone', clock: realClock, ttlMs: 60_000 });
}
