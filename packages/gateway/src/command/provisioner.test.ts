import { EventEmitter } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { ShutdownOwnership } from '@reindeer/protocol';
import { expect, onTestFinished, test } from 'vitest';
import type { Host } from './host.ts';
import { program } from './program.ts';

async function hostOf(environment: Readonly<Record<string, string>>) {
  const folder = await mkdtemp(`${tmpdir()}/reindeer-provisioner-`);
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const said: string[] = [];
  const process = Object.assign(new EventEmitter(), { pid: 1, kill: () => {} });
  const host: Host = {
    environment,
    cwd: folder,
    print: async (text) => void said.push(text),
    say: (text) => void said.push(text),
    interactive: true,
    process,
    shutdownOwnership: new ShutdownOwnership(),
    exit: () => {},
    entry: import.meta.url,
    version: '0',
    nodeVersion: 'v24.0.0',
  };
  return { host, said, process, folder };
}

test('it says what it needs when there is no cluster', async () => {
  const { host, said } = await hostOf({});
  expect(await program(host, ['provisioner'])).toBe(1);
  expect(said.join('')).toContain('KUBECONFIG_PATH');
  const other = await hostOf({ KUBECONFIG_PATH: 'nowhere.yaml' });
  expect(await program(other.host, ['provisioner'])).toBe(1);
  expect(other.said.join('')).toContain('nowhere.yaml cannot be read');
});

test('it serves on the loopback until it is told to end, and warns when nobody can be let in', async () => {
  // An empty variable, as manifests have them, is none.
  const { host, said, process, folder } = await hostOf({ KUBECONFIG_PATH: 'kubeconfig.yaml', K8S_NAMESPACE: '' });
  await writeFile(
    `${folder}/kubeconfig.yaml`,
    'current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u, namespace: of-the-context}}]\nclusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]\nusers: [{name: u, user: {token: of-mine}}]\n',
  );
  const running = program(host, ['provisioner', '--port', '0']);
  let address: string | undefined;
  while (address === undefined) {
    await new Promise(setImmediate);
    address = /http:\/\/127\.0\.0\.1:\d+/.exec(said.join(''))?.[0];
  }
  expect((await fetch(`${address}/health`)).status).toBe(200);
  expect((await fetch(`${address}/api/sandboxes`, { headers: { 'x-api-key': '' } })).status).toBe(401);
  expect(said.join('')).toContain('for namespace of-the-context');
  process.emit('SIGTERM');
  expect(await running).toBe(0);
  expect(said.join('')).toContain('PROVISIONER_API_KEY is empty');
  expect(said.join('')).not.toContain('of-mine');
  expect(process.eventNames()).toEqual([]);
});
