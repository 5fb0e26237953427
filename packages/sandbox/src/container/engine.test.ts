import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createSocketServer } from 'node:net';
import { tmpdir } from 'node:os';
import { deferred, realClock, realSurroundings, VirtualClock, verifies } from '@reindeer/testkit';
import { describe, expect, onTestFinished, test } from 'vitest';
import { MemoryLeases, MemoryOwnershipStore } from '../lifecycle/ownership/memory-store.ts';
import { temporaryHome } from '../test-support.ts';
import type { ContainerInfo } from './description.ts';
import { EngineClient, engineHint, findEngineSocket } from './engine.ts';
import { openContainerBackend } from './factory.ts';
import type { ContainerSettings } from './settings.ts';

type Handler = (request: IncomingMessage, body: string, response: ServerResponse) => void;

/** An engine that answers what a test says: for what no real one does on demand. */
async function fakeEngine(handle: Handler): Promise<{ readonly socket: string; readonly asked: string[] }> {
  const folder = await mkdtemp(`${tmpdir()}/reindeer-engine-`);
  const socket = `${folder}/engine.sock`;
  const asked: string[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (part: string) => {
      body += part;
    });
    request.on('end', () => {
      asked.push(`${request.method} ${decodeURIComponent(request.url ?? '')}`);
      handle(request, body, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(folder, { recursive: true, force: true });
  });
  return { socket, asked };
}

const say = (response: ServerResponse, status: number, body: unknown = null) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
};

const THREAD = { userId: 'default', threadId: 'one' };
const IMAGE = { Config: { Labels: { 'reindeer.sandbox': '1' } } };

async function backendOn(socket: string, settings: Partial<ContainerSettings> = {}) {
  const surroundings = realSurroundings();
  const home = await temporaryHome();
  const parts = await openContainerBackend({
    settings: { engineSocket: socket, ...settings },
    ownership: new MemoryOwnershipStore({
      ownerId: 'a',
      clock: realClock,
      ttlMs: 60_000,
      leases: new MemoryLeases(realClock, 60_000),
    }),
    home,
    surroundings,
    environment: {},
  });
  onTestFinished(async () => {
    await parts.storage.close();
    await parts.backend.close();
  });
  return { ...parts, logger: surroundings.logger, home };
}

const INFO: ContainerInfo = {
  id: 'x',
  name: 'reindeer-sandbox-x',
  url: '',
  createdAt: 0,
  containerId: 'abc',
  home: 'h',
  userId: 'default',
  threadId: 'one',
  nonce: 'n',
  transport: 'socket',
  ownServer: true,
};

describe('the engine’s API', () => {
  test('an answer is knowledge, whatever its status; silence is none', verifies('SX-01'), async () => {
    const { socket } = await fakeEngine((request, _body, response) => {
      if (request.url === '/gone') say(response, 404, { message: 'No such container' });
      else if (request.url === '/broken') say(response, 500, { message: 'oops' });
      else request.socket.destroy();
    });
    const engine = new EngineClient(socket, realClock);
    onTestFinished(() => engine.close());
    const ask = (path: string) => engine.ask({ method: 'GET', path, timeoutMs: 5_000 });
    expect(await ask('/gone')).toEqual({ status: 404, body: { message: 'No such container' } });
    expect((await ask('/broken')).status).toBe(500);
    await expect(ask('/cut')).rejects.toMatchObject({ code: 'sandbox_unavailable', retryable: true });
    const nobody = new EngineClient(`${socket}.none`, realClock);
    await expect(nobody.ask({ method: 'GET', path: '/info', timeoutMs: 5_000 })).rejects.toMatchObject({
      code: 'sandbox_unavailable',
      message: expect.stringMatching(/does not answer.*systemctl start docker/),
    });
  });

  test('a socket that this user may not use needs a group, not a start', () => {
    const denied = Object.assign(new Error('connect EACCES /var/run/docker.sock'), { code: 'EACCES' });
    expect(engineHint(denied)).toMatch(/usermod -aG docker/);
    expect(engineHint(denied)).not.toMatch(/systemctl start/);
    expect(engineHint(Object.assign(new Error('x'), { code: 'ENOENT' }))).toMatch(/systemctl start docker/);
  });

  test('every question has an end', async () => {
    const waiting = deferred<void>();
    const { socket } = await fakeEngine(() => waiting.resolve());
    const clock = new VirtualClock();
    const engine = new EngineClient(socket, clock);
    onTestFinished(() => engine.close());
    const asking = engine.ask({ method: 'GET', path: '/info', timeoutMs: 5_000 });
    const refused = expect(asking).rejects.toMatchObject({
      code: 'sandbox_unavailable',
      message: expect.stringContaining('no answer within 5 s'),
    });
    await waiting.promise;
    await clock.advance(5_000);
    await refused;
  });

  test('an endless answer is cut', async () => {
    const { socket } = await fakeEngine((_request, _body, response) => {
      const piece = 'x'.repeat(1024 * 1024);
      const more = () => {
        while (!response.destroyed && response.write(piece));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    });
    const engine = new EngineClient(socket, realClock);
    onTestFinished(() => engine.close());
    await expect(engine.ask({ method: 'GET', path: '/info', timeoutMs: 20_000 })).rejects.toMatchObject({
      message: expect.stringContaining('more than 8388608 bytes'),
    });
  });

  test('where it is: what was set, the environment, then the usual places', async () => {
    expect(await findEngineSocket('/a.sock', { DOCKER_HOST: 'unix:///b.sock' })).toBe('/a.sock');
    expect(await findEngineSocket(null, { DOCKER_HOST: 'unix:///b.sock', CONTAINER_HOST: 'unix:///c.sock' })).toBe(
      '/b.sock',
    );
    expect(await findEngineSocket(null, { CONTAINER_HOST: 'unix:///c.sock' })).toBe('/c.sock');
    const own = await temporaryHome();
    const server = createSocketServer();
    await new Promise<void>((resolve) => server.listen(`${own}/docker.sock`, resolve));
    expect(['/var/run/docker.sock', `${own}/docker.sock`]).toContain(
      await findEngineSocket(null, { XDG_RUNTIME_DIR: own }),
    );
    await new Promise((resolve) => server.close(resolve));
    await expect(findEngineSocket(null, { DOCKER_HOST: 'tcp://1.2.3.4:2375' })).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('DOCKER_HOST'),
    });
  });
});

describe('what the backend makes of it', () => {
  test('alive, dead, and unknown', verifies('SX-01', 'SX-02', 'SX-04'), async () => {
    let status = 500;
    let body: unknown = { message: 'oops' };
    const { socket } = await fakeEngine((_request, _body, response) => say(response, status, body));
    const { backend } = await backendOn(socket);
    await expect(backend.isAlive(INFO)).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect([await backend.discover('x'), await backend.listRunning()]).toEqual([null, []]);
    [status, body] = [404, { message: 'No such container: abc' }];
    expect(await backend.isAlive(INFO)).toBe(false);
    // Podman, in the middle of a removal.
    [status, body] = [500, { message: 'container abc does not exist in database: no such container' }];
    expect(await backend.isAlive(INFO)).toBe(false);
    [status, body] = [200, { State: { Running: false, Status: 'exited' } }];
    expect(await backend.isAlive(INFO)).toBe(false);
    [status, body] = [200, 'no object'];
    expect(await backend.listRunning()).toEqual([]);
  });

  test(
    'a stop counts when the container is gone, whatever the engine says meanwhile',
    verifies('SX-08', 'SX-15'),
    async () => {
      let looks = 0;
      let removal = 500;
      const { socket, asked } = await fakeEngine((request, _body, response) => {
        if (request.method === 'DELETE') return say(response, removal, { message: 'removal is already in progress' });
        if (request.url?.startsWith('/containers/')) {
          looks += 1;
          return looks < 3 ? say(response, 200, { State: { Running: true } }) : say(response, 404, {});
        }
        return say(response, 200, {});
      });
      const { backend, logger } = await backendOn(socket);
      await backend.stop(INFO);
      expect(asked.filter((one) => one.startsWith('DELETE'))).toEqual(['DELETE /containers/abc?force=true&v=true']);
      expect([looks, logger.lines.filter(({ level }) => level === 'warn').length]).toEqual([3, 1]);
      removal = 409;
      looks = 0;
      await backend.stop(INFO);
      removal = 404;
      looks = 0;
      await backend.stop(INFO);
      expect(looks).toBe(0);
    },
  );

  test(
    'a server that hangs at its first command gets the time of the probe, and no more',
    verifies('SX-11'),
    async () => {
      const asked: string[] = [];
      const hanging = createServer((request, response) => {
        asked.push(request.url ?? '');
        if (request.url === '/v1/sandbox') say(response, 200, { success: true, reindeer: 1 });
      });
      await new Promise<void>((resolve) => hanging.listen(0, '127.0.0.1', resolve));
      onTestFinished(async () => {
        hanging.closeAllConnections();
        await new Promise((resolve) => hanging.close(resolve));
      });
      const { socket } = await fakeEngine((_request, _body, response) =>
        say(response, 200, { State: { Running: true } }),
      );
      const { backend } = await backendOn(socket);
      const { port } = hanging.address() as AddressInfo;
      const info = { ...INFO, transport: 'port', url: `http://127.0.0.1:${port}` } as const;
      const began = performance.now();
      expect(await backend.ready(info, { withinMs: 300 })).toBe(false);
      expect(performance.now() - began).toBeLessThan(4_000);
      expect(asked).toContain('/v1/bash/exec');
    },
  );

  test('a lost answer to a create leaves no container behind', async () => {
    let nonce = '';
    let there = false;
    const { socket, asked } = await fakeEngine((request, body, response) => {
      const url = request.url ?? '';
      if (url.startsWith('/images/')) return say(response, 200, IMAGE);
      if (url.startsWith('/containers/create')) {
        nonce = (JSON.parse(body) as { Labels: Record<string, string> }).Labels['reindeer.nonce'] ?? '';
        there = true;
        request.socket.destroy();
        return;
      }
      if (request.method === 'DELETE') {
        there = false;
        return say(response, 204);
      }
      if (!url.startsWith('/containers/')) return say(response, 200, {});
      return there
        ? say(response, 200, { Id: 'made', Config: { Labels: { 'reindeer.nonce': nonce } } })
        : say(response, 404, {});
    });
    const { backend, storage } = await backendOn(socket);
    await storage.prepare(THREAD);
    await expect(backend.create({ id: 'x', ...THREAD })).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect(there).toBe(false);
    expect(asked).toContain('DELETE /containers/made?force=true&v=true');
  });

  test(
    'a taken port is tried again with another, at most ten times; other failures are not',
    verifies('SX-07'),
    async () => {
      let message = 'driver failed: Bind for 127.0.0.1:20001 failed: port is already allocated';
      const ports: string[] = [];
      const { socket } = await fakeEngine((request, body, response) => {
        const url = request.url ?? '';
        if (url.startsWith('/images/')) return say(response, 200, {});
        if (url.startsWith('/containers/create')) {
          const { HostConfig } = JSON.parse(body) as {
            HostConfig: { PortBindings: Record<string, { HostPort: string }[]> };
          };
          ports.push(HostConfig.PortBindings['9090/tcp']?.[0]?.HostPort ?? '?');
          return say(response, 201, { Id: 'made' });
        }
        if (url.endsWith('/start')) return say(response, 500, { message });
        return say(response, url.startsWith('/containers/') ? 404 : 200, {});
      });
      const { backend, storage } = await backendOn(socket, { port: 9090, network: 'bridge' });
      await storage.prepare(THREAD);
      await expect(backend.create({ id: 'x', ...THREAD })).rejects.toMatchObject({ code: 'sandbox_unavailable' });
      expect([ports.length, ports[0], new Set(ports).size]).toEqual([10, '', 10]);
      message = 'OCI runtime create failed';
      ports.length = 0;
      await expect(backend.create({ id: 'x', ...THREAD })).rejects.toMatchObject({ code: 'sandbox_unavailable' });
      expect(ports).toEqual(['']);
    },
  );

  test(
    'values of the environment and folders of the host are in no log, label or answer',
    verifies('SX-09'),
    async () => {
      const bodies: string[] = [];
      const { socket } = await fakeEngine((request, body, response) => {
        const url = request.url ?? '';
        bodies.push(body);
        if (url.startsWith('/images/')) return say(response, 200, IMAGE);
        if (url.startsWith('/containers/create'))
          return say(response, 400, { message: 'bad mount\nENV KEY=the-secret-value' });
        return say(response, url.startsWith('/containers/') ? 404 : 200, {});
      });
      const { backend, storage, logger, home } = await backendOn(socket, { environment: { KEY: 'the-secret-value' } });
      await storage.prepare(THREAD);
      const error: unknown = await backend.create({ id: 'x', ...THREAD }).catch((one: unknown) => one);
      expect(error).toMatchObject({ code: 'sandbox_unavailable' });
      const seen = JSON.stringify([bodies, logger.lines, String(error)]);
      expect(seen).not.toContain('the-secret-value');
      expect(String(error)).not.toContain(home);
      expect(logger.lines.some(({ level }) => level === 'error')).toBe(true);
    },
  );

  test('that this process cannot ask a server is no death of its container', verifies('SX-01'), async () => {
    const running = { ...INFO, transport: 'port' as const };
    const { socket } = await fakeEngine((_request, _body, response) =>
      say(response, 200, { State: { Running: true } }),
    );
    const { backend } = await backendOn(socket);
    // No such name, as no descriptor or no route, is met on this side of the way.
    await expect(backend.isAlive({ ...running, url: 'http://nowhere.invalid:80' })).rejects.toMatchObject({
      code: 'sandbox_unavailable',
    });
    // Here somebody would have listened.
    expect(await backend.isAlive({ ...running, url: 'http://127.0.0.1:1' })).toBe(false);
  });

  test('a container gets no more processors than there are: engines refuse it otherwise', async () => {
    const bodies: string[] = [];
    const { socket } = await fakeEngine((request, body, response) => {
      const url = request.url ?? '';
      if (url.startsWith('/images/')) return say(response, 200, IMAGE);
      if (url === '/info') return say(response, 200, { NCPU: 1, CpuCfsQuota: true });
      if (url.startsWith('/containers/create')) {
        bodies.push(body);
        return say(response, 400, { message: 'no' });
      }
      return say(response, 404, {});
    });
    const { backend, storage } = await backendOn(socket, { cpus: 4 });
    await storage.prepare(THREAD);
    await expect(backend.create({ id: 'x', ...THREAD })).rejects.toMatchObject({ code: 'sandbox_unavailable' });
    expect(JSON.parse(bodies[0] ?? '{}')).toMatchObject({ HostConfig: { NanoCpus: 1e9 } });
    expect(backend.report().limits).toContainEqual(expect.objectContaining({ name: 'processors', value: '1' }));
  });

  test('a port at an address of the sixth version is reached', async () => {
    const { socket } = await fakeEngine((_request, _body, response) =>
      say(response, 200, [
        {
          Id: 'made',
          Names: ['/reindeer-sandbox-x'],
          State: 'running',
          Labels: { 'reindeer.nonce': 'n', 'reindeer.home': 'h', 'reindeer.user': 'u', 'reindeer.thread': 't' },
          Ports: [{ IP: '::1', PrivatePort: 8080, PublicPort: 49_152 }],
        },
      ]),
    );
    const { backend } = await backendOn(socket, { bindHost: '::1' });
    expect(await backend.listRunning()).toMatchObject([{ url: 'http://[::1]:49152' }]);
  });

  test('what is missing is said with its remedy', async () => {
    const { socket } = await fakeEngine((request, _body, response) =>
      say(response, request.url?.startsWith('/images/') === true ? 404 : 200, {}),
    );
    const { backend, storage } = await backendOn(socket, { image: 'some/where:1' });
    await storage.prepare(THREAD);
    await expect(backend.create({ id: 'x', ...THREAD })).rejects.toMatchObject({
      message: expect.stringMatching(/no image some\/where:1.*docker pull some\/where:1/),
    });
    const other = await fakeEngine((_request, _body, response) => say(response, 200, {}));
    const foreign = await backendOn(other.socket);
    await expect(foreign.backend.create({ id: 'x', ...THREAD })).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('sandbox.network: bridge'),
    });
  });

  test('a report claims what this engine enforces, and nothing else', async () => {
    const { socket } = await fakeEngine((_request, _body, response) =>
      say(response, 200, {
        MemoryLimit: true,
        PidsLimit: false,
        CpuCfsQuota: true,
        ServerVersion: '1.2',
        SecurityOptions: ['name=rootless'],
      }),
    );
    const { backend } = await backendOn(socket);
    const by = new Map(backend.report().limits.map(({ name, enforcedBy }) => [name, enforcedBy]));
    expect([by.get('memory'), by.get('processes'), by.get('processors')]).toEqual(['cgroup', null, 'cgroup']);
    expect(JSON.stringify(backend.report())).toContain('Docker 1.2, rootless');

    // Podman without root: named in a field of its own, and under cgroup v1 it ignores every limit that it says it has.
    const limits = { MemoryLimit: true, PidsLimit: true, CpuCfsQuota: true };
    const podman = { ...limits, Rootless: true, CgroupVersion: '1', ServerVersion: '4.3.1', BuildahVersion: '1.28.2' };
    const other = await fakeEngine((_request, _body, response) => say(response, 200, podman));
    const report = (await backendOn(other.socket)).backend.report();
    expect(JSON.stringify(report)).toContain('Podman 4.3.1, rootless');
    const enforced = (name: string) => report.limits.find((limit) => limit.name === name)?.enforcedBy;
    expect(['memory', 'processes', 'processors'].map(enforced)).toEqual([null, null, null]);
  });
});
