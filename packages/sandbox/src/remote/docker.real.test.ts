import { randomBytes } from 'node:crypto';
import type { Sandbox, SandboxLifecycle } from '@reindeer/protocol';
import { realClock, realSurroundings } from '@reindeer/testkit';
import { expect, onTestFinished, type TestContext, test } from 'vitest';
import { containerScene } from '../container/testing/scene.ts';
import { MemoryOwnershipStore } from '../lifecycle/ownership/memory-store.ts';
import type { FakeNode, FakeObject } from '../provisioner/testing/fake-kubernetes.ts';
import { KEY, provisionerScene } from '../provisioner/testing/scene.ts';
import { temporaryHome } from '../test-support.ts';
import { createRemoteProvider } from './factory.ts';
import { variable } from './testing/node.ts';

const scene = containerScene();

function needsBridge(context: TestContext): void {
  if (!scene().docker.bridge) context.skip('this engine has no network');
}

async function out(sandbox: Sandbox, command: string): Promise<string> {
  return (await sandbox.exec({ command, timeoutMs: 30_000 })).output.trim();
}

/** What a thread needs of a sandbox that shares no folder with this process. */
async function worksOnACopy(provider: SandboxLifecycle, thread: { userId: string; threadId: string }): Promise<void> {
  const sandbox = await provider.acquire(thread);
  const upload = randomBytes(3 * 1024 * 1024);
  await provider.files(thread).write('/mnt/user-data/uploads/given.bin', upload);
  await sandbox.files.write('program.sh', 'echo "$1" > /mnt/user-data/outputs/made.txt\n');
  expect(
    await out(sandbox, 'chmod +x program.sh && ./program.sh hello; umask 077; mkdir -p a/b; ln -s ../x a/b/link; pwd'),
  ).toBe('/mnt/user-data/workspace');
  expect(Buffer.from(await sandbox.files.read('/mnt/user-data/outputs/made.txt', { maxBytes: 100 })).toString()).toBe(
    'hello\n',
  );
  await out(
    sandbox,
    'cat /mnt/user-data/uploads/given.bin /mnt/user-data/uploads/given.bin > twice.bin; rm -f /mnt/user-data/uploads/given.bin',
  );
  const twice = Buffer.from(await sandbox.files.read('twice.bin', { maxBytes: 10 * 1024 * 1024 }));
  expect(twice.equals(Buffer.concat([upload, upload]))).toBe(true);
  expect(await out(sandbox, 'stat -c "%a %s" program.sh /mnt/user-data/uploads/given.bin; readlink a/b/link')).toBe(
    `755 44\n644 ${upload.length}\n../x`,
  );
  await provider.release(sandbox.id);
}

test('a container that shares no folder works on a copy, and a new one has what the old one made', async (context) => {
  needsBridge(context);
  const { docker, home } = scene();
  const provider = await scene().provider({ settings: { threadDataMounts: false, network: 'bridge' } });
  const thread = { userId: 'default', threadId: 'copied' };
  await worksOnACopy(provider, thread);
  const name = provider.list()[0]?.name ?? '';
  const { body } = await docker.ask('GET', `/containers/${name}/json`);
  // Nothing of the data folder is in it, and of its secret only the hash.
  expect(JSON.stringify(body)).not.toContain(home);
  expect((body as { Mounts: { Type: string }[] }).Mounts.map(({ Type }) => Type)).toEqual(Array(6).fill('volume'));
  expect(JSON.stringify(body)).toMatch(/REINDEER_SECRET_SHA256=[0-9a-f]{64}/);
  await docker.ask('DELETE', `/containers/${name}?force=true&v=true`);
  const again = await provider.acquire(thread);
  expect(await out(again, 'cat /mnt/user-data/outputs/made.txt; stat -c %a program.sh; readlink a/b/link')).toBe(
    'hello\n755\n../x',
  );
  expect(await out(again, 'echo $REINDEER_SECRET_SHA256')).toBe('');
});

/** A node that runs what is in a pod as a container: its image and variables, folders of its own, and no other. */
class DockerNode implements FakeNode {
  async start(pod: FakeObject): Promise<number> {
    const { docker } = scene();
    const port = variable(pod, 'REINDEER_PORT');
    const [container] = pod.spec.containers as { volumeMounts: { mountPath: string }[] }[];
    const made = await docker.ask('POST', `/containers/create?name=${this.nameOf(pod)}`, {
      Image: docker.image,
      Env: ['REINDEER_PORT', 'REINDEER_SECRET_SHA256'].map((name) => `${name}=${variable(pod, name)}`),
      ExposedPorts: { [`${port}/tcp`]: {} },
      HostConfig: {
        ReadonlyRootfs: true,
        CapDrop: ['ALL'],
        Mounts: container?.volumeMounts.map(({ mountPath }) => ({ Type: 'volume', Target: mountPath })),
        PortBindings: { [`${port}/tcp`]: [{ HostIp: '127.0.0.1', HostPort: '' }] },
      },
    });
    expect(made.status).toBe(201);
    await docker.ask('POST', `/containers/${this.nameOf(pod)}/start`);
    const { body } = await docker.ask('GET', `/containers/${this.nameOf(pod)}/json`);
    const ports = (body as { NetworkSettings: { Ports: Record<string, { HostPort: string }[]> } }).NetworkSettings
      .Ports;
    return Number(ports[`${port}/tcp`]?.[0]?.HostPort);
  }

  async stop(pod: FakeObject): Promise<void> {
    await scene().docker.ask('DELETE', `/containers/${this.nameOf(pod)}?force=true&v=true`);
  }

  nameOf(pod: FakeObject): string {
    return `${scene().docker.prefix}-${pod.metadata.uid}`;
  }
}

test('a pod of the provisioner works on a copy; when it is gone another takes its place', async (context) => {
  needsBridge(context);
  const node = new DockerNode();
  const { kubernetes, url } = await provisionerScene({ node });
  const provider = await createRemoteProvider({
    url,
    apiKey: KEY,
    ownership: new MemoryOwnershipStore({ ownerId: 'a', clock: realClock, ttlMs: 60_000 }),
    home: await temporaryHome(),
    surroundings: realSurroundings(),
    environment: {},
  });
  onTestFinished(() => provider.shutdown());
  const thread = { userId: 'default', threadId: 'pod' };
  await worksOnACopy(provider, thread);
  const [pod] = [...kubernetes.objects.pods.values()];
  if (pod === undefined) throw new Error('There is no pod.');
  await kubernetes.vanish(pod.metadata.name);
  const again = await provider.acquire(thread);
  expect(await out(again, 'cat /mnt/user-data/outputs/made.txt')).toBe('hello');
  expect([...kubernetes.objects.pods.values()].map(({ metadata }) => metadata.uid)).not.toContain(pod.metadata.uid);
  await provider.shutdown();
  expect([kubernetes.objects.pods.size, kubernetes.objects.services.size]).toEqual([0, 0]);
});
