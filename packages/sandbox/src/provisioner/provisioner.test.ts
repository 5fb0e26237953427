import { request } from 'node:http';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { podBody } from './pod.ts';
import { sandboxRequest } from './request.ts';
import { provisionerSettings } from './settings.ts';
import { provisionerScene } from './testing/scene.ts';

const WANTED = {
  sandbox_id: 'abc123',
  thread_id: 't',
  user_id: 'u',
  nonce: '12345678-1234',
  secret_sha256: 'a'.repeat(64),
  home: '0123456789abcdef',
};
const NAME = 'sandbox-abc123';

describe('the key', () => {
  test('whoever has it is let in, nobody else', verifies('SX-12'), async () => {
    const { call, kubernetes } = await provisionerScene();
    for (const key of [null, '', 'wrong', 'a-key-of-the-provisionerx', 'a-key-of-the-provisione'])
      for (const [method, path] of [
        ['GET', '/api/sandboxes'],
        ['POST', '/api/sandboxes'],
        ['DELETE', '/api/sandboxes/x'],
        ['GET', '/api/capabilities'],
        ['GET', '/api/nothing'],
      ] as const)
        expect([key, (await call(method, path, method === 'POST' ? WANTED : undefined, key)).status]).toEqual([
          key,
          401,
        ]);
    expect(kubernetes.asked).toEqual([]);
    expect(await call('GET', '/health', undefined, null)).toMatchObject({ status: 200 });
    expect(await call('GET', '/api/sandboxes')).toEqual({ status: 200, body: { sandboxes: [], count: 0 } });
  });

  test('without one nobody is let in, not even with an empty one', verifies('SX-12'), async () => {
    const { call } = await provisionerScene({ environment: { PROVISIONER_API_KEY: ' ' } });
    for (const key of [null, '', ' ', 'x'])
      expect((await call('GET', '/api/sandboxes', undefined, key)).status).toBe(401);
    expect((await call('GET', '/health', undefined, null)).status).toBe(200);
  });
});

/** `fetch` makes good what a client may send all the same. */
function statusOf(url: string, path: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    request(url, { path, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    })
      .once('error', reject)
      .end();
  });
}

test('an address that is none is refused, and fills no log', async () => {
  const { url, logger } = await provisionerScene();
  for (const path of ['//', '///', 'http://[']) expect([path, await statusOf(url, path)]).toEqual([path, 422]);
  expect(logger.lines).toEqual([]);
});

describe('creating', () => {
  test('once per id, told by id, listed by deployment', verifies('SX-13'), async () => {
    const { call, kubernetes } = await provisionerScene();
    const first = await call('POST', '/api/sandboxes', WANTED);
    expect(first).toMatchObject({
      status: 201,
      body: {
        sandbox_id: 'abc123',
        sandbox_url: 'http://127.0.0.1:30000',
        status: 'Running',
        created: true,
        ready: true,
      },
    });
    const again = await call('POST', '/api/sandboxes', { ...WANTED, nonce: 'another-nonce' });
    expect(again).toMatchObject({ status: 200, body: { uid: first.body.uid, nonce: WANTED.nonce, created: false } });
    const both = await Promise.all([call('POST', '/api/sandboxes', WANTED), call('POST', '/api/sandboxes', WANTED)]);
    expect(both.map(({ body }) => body.uid)).toEqual([first.body.uid, first.body.uid]);
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([1, 1]);
    expect(await call('GET', '/api/sandboxes/abc123')).toMatchObject({ status: 200, body: { uid: first.body.uid } });
    expect(await call('GET', '/api/sandboxes/other')).toMatchObject({ status: 404, body: { status: 'NotFound' } });
    expect((await call('GET', '/api/sandboxes?home=0123456789abcdef')).body.count).toBe(1);
    expect((await call('GET', '/api/sandboxes?home=ffffffffffffffff')).body.count).toBe(0);
    expect(new Set(kubernetes.tokens)).toEqual(new Set(['Bearer of-the-account']));
  });

  test('a pod without its service is taken back', verifies('SX-13'), async () => {
    const { call, kubernetes } = await provisionerScene();
    kubernetes.faults.push({ at: 'POST /services', kind: { status: 500 } });
    const failed = await call('POST', '/api/sandboxes', WANTED);
    expect(failed.status).toBe(503);
    // The cluster's own words stay in the log.
    expect(JSON.stringify(failed.body)).not.toContain('/secret/place');
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
    kubernetes.faults.push({ at: 'POST /services', kind: 'lost' });
    expect((await call('POST', '/api/sandboxes', WANTED)).status).toBe(503);
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
    expect((await call('POST', '/api/sandboxes', WANTED)).status).toBe(201);
  });

  test('of a pod that was there before, a failure takes nothing back', verifies('SX-13'), async () => {
    const { call, kubernetes } = await provisionerScene();
    await call('POST', '/api/sandboxes', WANTED);
    kubernetes.objects.services.clear();
    kubernetes.faults.push({ at: 'POST /services', kind: { status: 500 } });
    expect((await call('POST', '/api/sandboxes', { ...WANTED, nonce: 'another-nonce' })).status).toBe(503);
    expect(kubernetes.objects.pods.size).toBe(1);
    // And the next one finds it whole again.
    expect((await call('POST', '/api/sandboxes', { ...WANTED, nonce: 'another-nonce' })).status).toBe(200);
    expect(kubernetes.objects.services.size).toBe(1);
  });

  test('a lost answer makes no second pod, and a cut request none', verifies('SX-13'), async () => {
    const { call, kubernetes } = await provisionerScene();
    kubernetes.faults.push({ at: 'POST /pods', kind: 'cut' });
    expect((await call('POST', '/api/sandboxes', WANTED)).status).toBe(503);
    expect(kubernetes.objects.pods.size).toBe(0);
    kubernetes.faults.push({ at: 'POST /pods', kind: 'lost' });
    expect(await call('POST', '/api/sandboxes', WANTED)).toMatchObject({ status: 201 });
    expect(kubernetes.objects.pods.size).toBe(1);
  });

  test('an API server that says nothing is waited for so long, and what it did all the same is taken back', async () => {
    const { call, kubernetes } = await provisionerScene({ askMs: 200 });
    kubernetes.faults.push({ at: 'POST /services', kind: 'late' });
    expect((await call('POST', '/api/sandboxes', WANTED)).status).toBe(503);
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
    kubernetes.faults.push({ at: 'GET /pods', kind: 'late' });
    expect((await call('GET', '/api/sandboxes/abc123')).status).toBe(503);
  });

  test('what has ended gives its name to the new one; what is going is waited for', async () => {
    const { call, kubernetes } = await provisionerScene();
    const first = await call('POST', '/api/sandboxes', WANTED);
    const pod = kubernetes.objects.pods.get(NAME);
    if (pod?.status !== undefined) pod.status.phase = 'Failed';
    const second = await call('POST', '/api/sandboxes', { ...WANTED, nonce: 'second-nonce' });
    expect(second).toMatchObject({ status: 201, body: { nonce: 'second-nonce' } });
    expect(second.body.uid).not.toBe(first.body.uid);
    kubernetes.lingering = true;
    expect((await call('DELETE', '/api/sandboxes/abc123')).status).toBe(200);
    expect((await call('GET', '/api/sandboxes/abc123')).body).toMatchObject({ terminating: true });
    const third = call('POST', '/api/sandboxes', { ...WANTED, nonce: 'third-nonce' });
    while (kubernetes.asked.filter((one) => one === 'POST /pods').length < 4) await new Promise(setImmediate);
    await kubernetes.vanish(NAME);
    expect(await third).toMatchObject({ status: 201, body: { nonce: 'third-nonce' } });
  });

  test('a pod of somebody else under the name is left alone', async () => {
    const { call, kubernetes } = await provisionerScene();
    await call('POST', '/api/sandboxes', WANTED);
    const pod = kubernetes.objects.pods.get(NAME);
    if (pod !== undefined) pod.metadata.labels = {};
    expect((await call('POST', '/api/sandboxes', WANTED)).status).toBe(409);
    expect((await call('DELETE', '/api/sandboxes/abc123')).status).toBe(409);
    expect(kubernetes.objects.pods.size).toBe(1);
  });
});

describe('removing', () => {
  test('what is gone is no fault; what may be left is', verifies('SX-13'), async () => {
    const { call, kubernetes } = await provisionerScene();
    const remove = () => call('DELETE', '/api/sandboxes/abc123');
    expect(await remove()).toEqual({ status: 200, body: { ok: true, sandbox_id: 'abc123' } });
    await call('POST', '/api/sandboxes', WANTED);
    kubernetes.faults.push({ at: 'DELETE /services', kind: { status: 500 } });
    const partly = await remove();
    expect([partly.status, String(partly.body.message)]).toEqual([500, expect.stringContaining('service')]);
    // The other one was tried all the same.
    expect(kubernetes.objects.pods.size).toBe(0);
    await call('POST', '/api/sandboxes', WANTED);
    kubernetes.faults.push({ at: 'DELETE /pods', kind: { status: 500 } });
    expect((await remove()).status).toBe(500);
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([1, 0]);
    kubernetes.faults.push({ at: 'DELETE /pods', kind: 'lost' });
    expect((await remove()).status).toBe(500);
    expect((await remove()).status).toBe(200);
    await call('POST', '/api/sandboxes', WANTED);
    const gone = { status: 404, body: { kind: 'Status', reason: 'NotFound' } };
    kubernetes.faults.push({ at: 'DELETE /services', kind: gone }, { at: 'DELETE /pods', kind: gone });
    expect((await remove()).status).toBe(200);
  });

  test('a 404 that is not the API server’s proves nothing', verifies('SX-13'), async () => {
    const { call, kubernetes } = await provisionerScene();
    await call('POST', '/api/sandboxes', WANTED);
    kubernetes.faults.push({ at: 'GET /pods', kind: { status: 404, body: 'default backend' }, times: 2 });
    expect((await call('GET', '/api/sandboxes/abc123')).status).toBe(503);
    expect((await call('DELETE', '/api/sandboxes/abc123')).status).toBe(503);
    expect(kubernetes.objects.pods.size).toBe(1);
  });

  test('the removal of one pod is none of its successor', async () => {
    const { call, kubernetes } = await provisionerScene();
    const first = await call('POST', '/api/sandboxes', WANTED);
    await call('DELETE', '/api/sandboxes/abc123');
    await call('POST', '/api/sandboxes', { ...WANTED, nonce: 'second-nonce' });
    expect((await call('DELETE', `/api/sandboxes/abc123?uid=${first.body.uid}`)).status).toBe(200);
    expect((await call('DELETE', `/api/sandboxes/abc123?nonce=${WANTED.nonce}`)).status).toBe(200);
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([1, 1]);
    expect((await call('DELETE', '/api/sandboxes/abc123?nonce=second-nonce')).status).toBe(200);
    expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
  });
});

describe('what may be asked for', () => {
  const environment = { REINDEER_HOST_BASE_DIR: '/data/reindeer/' };
  const folder = '/data/reindeer/users/u/threads/t/user-data/workspace';
  const mount = (host_path: unknown, container_path: unknown = '/mnt/user-data/workspace') => ({
    host_path,
    container_path,
  });

  test('ids, and nothing that is no id', verifies('SX-14'), async () => {
    const { call, kubernetes } = await provisionerScene();
    for (const id of ['', 'a'.repeat(65), 'a b', '../x', 'a/b', 'a.b', 'é', 7, null, 'a\n']) {
      expect([id, (await call('POST', '/api/sandboxes', { ...WANTED, sandbox_id: id })).status]).toEqual([id, 422]);
    }
    for (const id of ['a.b', `${'a'.repeat(65)}`, '%2e%2e%2fpods'])
      for (const method of ['GET', 'DELETE']) expect((await call(method, `/api/sandboxes/${id}`)).status).toBe(422);
    expect(kubernetes.asked).toEqual([]);
    // Whatever an id may be, its pod has a name that Kubernetes takes.
    for (const id of ['A_b', '-x', 'x-', '_', 'a'.repeat(64)]) {
      expect((await call('POST', '/api/sandboxes', { ...WANTED, sandbox_id: id })).status).toBe(201);
      expect((await call('GET', `/api/sandboxes/${id}`)).body.sandbox_id).toBe(id);
    }
    for (const name of kubernetes.objects.pods.keys()) expect(name).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
  });

  test('folders of threads at their places, and no others', verifies('SX-14'), async () => {
    const { call, kubernetes } = await provisionerScene({ environment });
    const refused: readonly unknown[] = [
      Array.from({ length: 11 }, () => mount(folder)),
      [mount(folder), mount(folder)],
      [mount(folder, '/etc')],
      [mount(folder, '/mnt/user-data')],
      [mount(folder, '/mnt/user-data/workspace/')],
      [mount('/etc')],
      [mount('/data/reindeer')],
      [mount('/data/reindeerx/users/u/threads/t/user-data/workspace')],
      [mount('/data/reindeer/../../etc')],
      [mount('/data/reindeer/users/u/threads/../../../../etc')],
      [mount('/data/reindeer/users/u/threads/t/user-data/outputs')],
      // What runs in a pod may have put a link there.
      [mount(`${folder}/link`)],
      [mount(`${folder}/`)],
      [mount('/data/reindeer/users//threads/t/user-data/workspace')],
      [mount(7)],
      ['x'],
      'x',
    ];
    for (const extra_mounts of refused) {
      const { status } = await call('POST', '/api/sandboxes', { ...WANTED, extra_mounts });
      expect([extra_mounts, status]).toEqual([extra_mounts, 422]);
    }
    expect(kubernetes.asked).toEqual([]);
    const extra_mounts = [
      { ...mount(folder), read_only: false },
      mount('/data/reindeer/users/u/skills/view', '/mnt/skills'),
    ];
    expect((await call('POST', '/api/sandboxes', { ...WANTED, extra_mounts })).status).toBe(201);
    const pod = JSON.stringify(kubernetes.objects.pods.get(NAME)?.spec);
    expect(pod).toContain(`"hostPath":{"path":"${folder}","type":"Directory"}`);
    expect(pod).toContain('"mountPath":"/mnt/skills","readOnly":true');
  });

  test('without a state base nothing is mounted', verifies('SX-14'), async () => {
    const { call } = await provisionerScene();
    expect((await call('POST', '/api/sandboxes', { ...WANTED, extra_mounts: [mount(folder)] })).status).toBe(422);
  });

  test('a claim is mounted by folder, so that no node follows a path', () => {
    const settings = provisionerSettings({ ...environment, USERDATA_PVC_NAME: 'data' });
    const pod = JSON.stringify(
      podBody(sandboxRequest({ ...WANTED, extra_mounts: [mount(folder)] }, settings.stateBase), settings),
    );
    expect(pod).toContain('"claimName":"data"');
    expect(pod).toContain('"subPath":"users/u/threads/t/user-data/workspace"');
    expect(pod).not.toContain('hostPath');
  });
});

test('a pod has no rights, no token, and nothing secret in it', async () => {
  const { call, kubernetes } = await provisionerScene();
  await call('POST', '/api/sandboxes', WANTED);
  expect(kubernetes.objects.pods.get(NAME)?.spec).toMatchObject({
    automountServiceAccountToken: false,
    securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    containers: [
      {
        env: [
          { name: 'REINDEER_PORT', value: '8080' },
          { name: 'REINDEER_SECRET_SHA256', value: WANTED.secret_sha256 },
        ],
        securityContext: {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        },
      },
    ],
  });
});

test('variables that cannot be kept are named', () => {
  for (const [name, value] of [
    ['K8S_NAMESPACE', 'a/b'],
    ['SANDBOX_SERVICE_TYPE', 'LoadBalancer'],
    ['SANDBOX_CONTAINER_PORT', '80'],
    ['SANDBOX_MEMORY_LIMIT', 'much'],
    // Kubernetes reads it as: without a limit.
    ['SANDBOX_CPU_LIMIT', '0'],
    ['SANDBOX_MEMORY_LIMIT', '0.0Gi'],
    ['NODE_HOST', 'http://x'],
    ['REINDEER_HOST_BASE_DIR', '/a/../b'],
    ['USERDATA_PVC_NAME', 'data'],
  ] as const)
    expect(() => provisionerSettings({ [name]: value })).toThrow(name);
});
