import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { realSurroundings, sandboxSameInstanceRacesContract, verifies } from '@reindeer/testkit';
import { afterAll, afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { MirroredEngine } from '../container/testing/mirrored-engine.ts';
import { memoryFactory } from '../lifecycle/testing/memory-factory.ts';
import type { FakeObject } from '../provisioner/testing/fake-kubernetes.ts';
import { KEY, openProvisionerScene, provisionerScene } from '../provisioner/testing/scene.ts';
import { temporaryHome } from '../test-support.ts';
import { openRemoteBackend } from './factory.ts';
import { ProcessNode } from './testing/node.ts';

const THREAD = { userId: 'default', threadId: 'one' };

async function scene(options: { readonly askMs?: number } = {}) {
  const node = new ProcessNode();
  const { kubernetes, url, call } = await provisionerScene({ node, ...options });
  const surroundings = realSurroundings();
  const home = await temporaryHome();
  const open = async (part: { readonly home?: string; readonly apiKey?: string; readonly url?: string } = {}) => {
    const opened = await openRemoteBackend({ url, apiKey: KEY, home, surroundings, environment: {}, ...part });
    onTestFinished(async () => {
      await opened.storage.close();
      await opened.backend.close();
    });
    return opened;
  };
  const { backend, storage } = await open();
  await storage.prepare(THREAD);
  const pod = (id: string): FakeObject => {
    const found = kubernetes.objects.pods.get(`sandbox-${id}`);
    if (found === undefined) throw new Error('no such pod');
    return found;
  };
  return { node, kubernetes, call, backend, open, pod, url, home, logger: surroundings.logger };
}

describe('sandboxes of a provisioner', () => {
  test('made, ready, found, listed and removed', verifies('SX-15'), async () => {
    const { backend, kubernetes, node } = await scene();
    const { outcome, info } = await backend.create({ id: 'abc', ...THREAD });
    expect(outcome).toBe('created');
    expect(await backend.ready(info, { withinMs: 20_000 })).toBe(true);
    expect(await backend.isAlive(info)).toBe(true);
    expect(await backend.discover('abc')).toEqual(info);
    expect(await backend.listRunning()).toEqual([info]);
    expect((await backend.create({ id: 'abc', ...THREAD })).outcome).toBe('existing');
    expect(backend.report()).toMatchObject({ provider: 'remote', canExecute: true });
    // A stop that failed is told: whoever keeps the sandbox keeps it.
    kubernetes.faults.push({ at: 'DELETE /pods', kind: { status: 500 } });
    await expect(backend.stop(info)).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    await backend.stop(info);
    expect([node.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
    expect([await backend.isAlive(info), await backend.discover('abc'), await backend.listRunning()]).toEqual([
      false,
      null,
      [],
    ]);
    await backend.stop(info);
  });

  test('the stop of one pod is none of its successor, and waits until it is gone', async () => {
    const { backend, kubernetes } = await scene();
    const first = await backend.create({ id: 'abc', ...THREAD });
    await backend.stop(first.info);
    const second = await backend.create({ id: 'abc', ...THREAD });
    await backend.stop(first.info);
    expect([await backend.isAlive(first.info), await backend.isAlive(second.info)]).toEqual([false, true]);
    kubernetes.lingering = true;
    let gone = false;
    const stopping = backend.stop(second.info).then(() => {
      gone = true;
    });
    while (!kubernetes.asked.at(-1)?.startsWith('GET /services')) await new Promise(setImmediate);
    expect(gone).toBe(false);
    await kubernetes.vanish('sandbox-abc');
    await stopping;
  });

  test('that something cannot be reached is no death', verifies('SX-01', 'SX-02', 'SX-04'), async () => {
    const { backend, kubernetes, node, pod, open } = await scene({ askMs: 300 });
    const { info } = await backend.create({ id: 'abc', ...THREAD });
    for (const kind of ['cut', 'late', { status: 500 }, { status: 404, body: 'default backend' }] as const) {
      kubernetes.faults.push({ at: 'GET /pods', kind, times: 3 });
      await expect(backend.isAlive(info)).rejects.toMatchObject({ code: 'sandbox_unavailable' });
      expect(await backend.discover('abc')).toBeNull();
      expect(await backend.listRunning()).toEqual([]);
      kubernetes.faults.length = 0;
    }
    // A proxy before the provisioner that knows no such route.
    const proxy = createServer((_request, response) => {
      response.writeHead(404, { 'content-type': 'application/json' });
      response.end('{"message":"no route"}');
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void proxy.close());
    const behind = await open({ url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` });
    await expect(behind.backend.isAlive(info)).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    // Its server does not answer us, while its own node finds it well: the way is broken, not the sandbox.
    await node.stop(pod('abc'));
    await expect(backend.isAlive(info)).rejects.toMatchObject({
      message: expect.stringContaining('nothing says that it is dead'),
    });
    const [ready] = pod('abc').status?.conditions ?? [];
    if (ready !== undefined) ready.status = 'False';
    expect(await backend.isAlive(info)).toBe(false);
  });

  test('what has ended is dead', async () => {
    const { backend, pod } = await scene();
    const { info } = await backend.create({ id: 'abc', ...THREAD });
    const { status } = pod('abc');
    if (status !== undefined) status.phase = 'Failed';
    expect([await backend.isAlive(info), await backend.listRunning()]).toEqual([false, []]);
  });

  test('after a lost answer nothing is left, and the key is in no message', async () => {
    const { backend, kubernetes, open, logger } = await scene();
    kubernetes.faults.push({ at: 'POST /services', kind: 'lost' });
    await expect(backend.create({ id: 'abc', ...THREAD })).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
    const wrong = await open({ apiKey: 'not-the-right-key' });
    const refused: unknown = await wrong.backend.create({ id: 'abc', ...THREAD }).catch((error: unknown) => error);
    expect(String(refused)).toContain('sandbox.provisioner_api_key');
    const away = await open({ url: 'http://127.0.0.1:1', apiKey: 'not-the-right-key' });
    const unreachable: unknown = await away.backend.create({ id: 'abc', ...THREAD }).catch((error: unknown) => error);
    expect(String(unreachable)).toContain('sandbox.provisioner_url');
    expect(away.backend.report()).toMatchObject({
      canExecute: false,
      reason: expect.stringContaining('does not answer'),
    });
    expect(JSON.stringify([refused, unreachable, String(refused), String(unreachable), logger.lines])).not.toContain(
      'not-the-right-key',
    );
    for (const bad of [{ url: 'ftp://x' }, { url: 'http://me:word@x' }, { apiKey: '' }, { apiKey: 'a b' }])
      await expect(open(bad)).rejects.toMatchObject({ code: 'configuration' });
  });

  test('a sandbox of another deployment is neither used nor removed', async () => {
    const { backend, open, kubernetes } = await scene();
    const other = await open({ home: await temporaryHome() });
    await backend.create({ id: 'abc', ...THREAD });
    await expect(other.backend.create({ id: 'abc', ...THREAD })).rejects.toMatchObject({ code: 'configuration' });
    expect([await other.backend.discover('abc'), await other.backend.listRunning()]).toEqual([null, []]);
    expect(kubernetes.objects.pods.size).toBe(1);
  });
});

/** The lifecycle's races, with a pod of the provisioner behind each simulated container. */
const engines: MirroredEngine[] = [];
const cluster = openProvisionerScene({ node: new ProcessNode() });
afterEach(async () => {
  for (const engine of engines.splice(0)) {
    await engine.end();
    expect(engine.differences).toEqual([]);
  }
});
afterAll(async () => (await cluster).end());

sandboxSameInstanceRacesContract('our provider, pods of a provisioner', {
  ...memoryFactory(),
  engine: (clock) => {
    const parts = (async () => {
      const { url } = await cluster;
      const surroundings = realSurroundings();
      return openRemoteBackend({ url, apiKey: KEY, home: await temporaryHome(), surroundings, environment: {} });
    })();
    const engine = new MirroredEngine(clock, parts);
    engines.push(engine);
    return engine;
  },
});
