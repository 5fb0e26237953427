import type { AddressInfo } from 'node:net';
import { LogRecorder, realClock } from '@reindeer/testkit';
import { onTestFinished } from 'vitest';
import { KubernetesClient } from '../kubernetes.ts';
import { Provisioner } from '../provisioner.ts';
import { createProvisionerServer } from '../server.ts';
import { provisionerSettings } from '../settings.ts';
import { FakeKubernetes, type FakeNode } from './fake-kubernetes.ts';

export const KEY = 'a-key-of-the-provisioner';

export interface ProvisionerScene {
  readonly kubernetes: FakeKubernetes;
  readonly provisioner: Provisioner;
  readonly url: string;
  readonly logger: LogRecorder;
  end(): Promise<void>;
}

/** The service over a real socket, on a Kubernetes that does as the test says. */
export async function openProvisionerScene(
  options: {
    readonly node?: FakeNode;
    readonly environment?: Readonly<Record<string, string>>;
    readonly askMs?: number;
  } = {},
): Promise<ProvisionerScene> {
  const kubernetes = new FakeKubernetes(options.node);
  const address = await kubernetes.listen();
  const token = async () => 'of-the-account';
  const access = { url: address, namespace: null, ca: null, certificate: null, token };
  const client = new KubernetesClient(access, realClock, {});
  const settings = provisionerSettings({ PROVISIONER_API_KEY: KEY, ...options.environment });
  const logger = new LogRecorder();
  const provisioner = new Provisioner({
    kubernetes: client,
    settings,
    clock: realClock,
    logger,
    ...(options.askMs === undefined ? {} : { askMs: options.askMs }),
  });
  const server = createProvisionerServer({ provisioner, settings, logger, version: '0' });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    kubernetes,
    provisioner,
    logger,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    end: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      client.close();
      await kubernetes.close();
    },
  };
}

/** The same for one test. */
export async function provisionerScene(options: Parameters<typeof openProvisionerScene>[0] = {}) {
  const scene = await openProvisionerScene(options);
  onTestFinished(() => scene.end());
  const call = async (method: string, path: string, body?: unknown, key: string | null = KEY) => {
    const answer = await fetch(`${scene.url}${path}`, {
      method,
      headers: { 'content-type': 'application/json', ...(key === null ? {} : { 'x-api-key': key }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
  };
  return { ...scene, call };
}
