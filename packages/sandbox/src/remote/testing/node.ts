import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { realClock } from '@reindeer/testkit';
import { PipePool } from '../../process/pipes.ts';
import type { FakeNode, FakeObject } from '../../provisioner/testing/fake-kubernetes.ts';
import { CommandRunner } from '../../server/commands.ts';
import { createSandboxServer } from '../../server/server.ts';

interface Started {
  readonly server: Server;
  readonly folder: string;
  readonly pipes: PipePool;
}

/** A node whose pods are servers of this process, each with folders of its own. */
export class ProcessNode implements FakeNode {
  readonly pods = new Map<string, Started>();

  async start(pod: FakeObject): Promise<number> {
    const folder = await mkdtemp(`${tmpdir()}/reindeer-pod-`);
    const folders = new Map(['workspace', 'uploads', 'outputs', 'skills'].map((name) => [name, `${folder}/${name}`]));
    for (const path of folders.values()) await mkdir(path);
    const pipes = new PipePool(`${folder}/pipes`);
    const environment = { PATH: process.env.PATH ?? '' };
    const server = createSandboxServer({
      secretHash: Buffer.from(variable(pod, 'REINDEER_SECRET_SHA256'), 'hex'),
      runner: new CommandRunner({ clock: realClock, uuid: randomUUID, pipes, environment, ownsContainer: false }),
      clock: realClock,
      uuid: randomUUID,
      version: '0',
      home: folder,
      folders,
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    this.pods.set(pod.metadata.uid, { server, folder, pipes });
    return (server.address() as AddressInfo).port;
  }

  async stop(pod: FakeObject): Promise<void> {
    const started = this.pods.get(pod.metadata.uid);
    this.pods.delete(pod.metadata.uid);
    if (started === undefined) return;
    started.server.closeAllConnections();
    await new Promise((resolve) => started.server.close(resolve));
    await started.pipes.close();
    await rm(started.folder, { recursive: true, force: true });
  }
}

/** What a pod's container finds in its environment. */
export function variable(pod: FakeObject, name: string): string {
  const [container] = pod.spec.containers as { env: { name: string; value: string }[] }[];
  return container?.env.find((one) => one.name === name)?.value ?? '';
}
