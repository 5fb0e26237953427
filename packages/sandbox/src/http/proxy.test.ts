import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { realClock, verifies } from '@reindeer/testkit';
import { expect, onTestFinished, test } from 'vitest';
import { askJson } from './ask.ts';
import { agentFor, isNear } from './proxy.ts';

test('what is near, by address and by name', verifies('SX-10'), () => {
  const near = [
    '127.0.0.1',
    '127.9.9.9',
    '10.1.2.3',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '169.254.1.1',
    '[::1]',
    '::1',
    'fd00::1',
    'fe80::1',
    '::ffff:10.0.0.1',
    'localhost',
    'LOCALHOST.',
    'a.localhost',
    'host.docker.internal',
    'host.containers.internal',
    'sandbox',
    'sandbox-1.reindeer.svc',
    'sandbox-1.reindeer.svc.cluster.local',
  ];
  const far = [
    '8.8.8.8',
    '172.32.0.1',
    '172.15.0.1',
    '192.169.0.1',
    '2001:db8::1',
    '::ffff:8.8.8.8',
    'example.com',
    'docker.internal.example.com',
    'notdocker.internal.evil.test',
    'localhost.evil.test',
    'xlocalhost.y',
    '10.0.0.1.evil.test',
  ];
  expect(near.filter((host) => !isNear(host))).toEqual([]);
  expect(far.filter((host) => isNear(host))).toEqual([]);
});

test('a proxy is asked for what is far, unless NO_PROXY says otherwise', verifies('SX-10'), async () => {
  const asked: string[] = [];
  const proxy = createServer((request, response) => {
    asked.push(request.url ?? '');
    response.end('{"from":"proxy"}');
  });
  const direct = createServer((_request, response) => response.end('{"from":"server"}'));
  const ports: number[] = [];
  for (const server of [proxy, direct]) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    ports.push((server.address() as AddressInfo).port);
    onTestFinished(async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
  }
  const environment = { HTTP_PROXY: `http://127.0.0.1:${ports[0]}`, HTTPS_PROXY: `http://127.0.0.1:${ports[0]}` };
  const from = async (address: string, variables: Readonly<Record<string, string>>) => {
    const url = new URL(address);
    const agent = agentFor(url, variables, 4);
    const where = { protocol: url.protocol, hostname: url.hostname, port: url.port, agent };
    try {
      const answer = await askJson(realClock, where, { method: 'GET', path: '/x', timeoutMs: 2_000 });
      return answer.body;
    } catch {
      return null;
    } finally {
      agent.destroy();
    }
  };
  const server = `http://127.0.0.1:${ports[1]}`;
  expect(await from(server, environment)).toEqual({ from: 'server' });
  expect(await from(server.replace('127.0.0.1', 'localhost'), environment)).toEqual({ from: 'server' });
  expect(asked).toEqual([]);
  expect(await from('http://sandboxes.example.com:81', environment)).toEqual({ from: 'proxy' });
  expect(asked).toEqual(['http://sandboxes.example.com:81/x']);
  // No such name: it was not the proxy that was asked.
  expect(await from('http://sandboxes.invalid:81', { ...environment, NO_PROXY: '.invalid' })).toBeNull();
  expect(asked).toHaveLength(1);
});
