import { type ChannelHost, ChannelService, DEFAULT_CHANNEL_SETTINGS } from '@reindeer/channels';
import { MemoryDatabase, openMemory } from '@reindeer/database';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Fixture, startFixture } from '../testing/http-fixture.ts';
import { channelRoutes } from './channels.ts';

const SECRET = '1:a-token-that-nobody-sees';
const surroundings = testSurroundings();
const stores = openMemory({ surroundings, database: new MemoryDatabase(surroundings.random) });
let entered: Readonly<Record<string, string>> | null = null;
const channels = new ChannelService({
  store: stores.channels,
  // Nothing is listened to here: only what is asked about and set.
  host: {} as ChannelHost,
  settings: DEFAULT_CHANNEL_SETTINGS,
  surroundings,
  owner: 'one',
  credentials: {
    read: async () => entered,
    write: async (_provider, values) => {
      entered = values;
    },
  },
});
let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture({
    modules: [(api) => channelRoutes(api, { channels, operator: 'default' })],
    guards: { allowedHosts: [], allowedOrigins: [], token: null, internalToken: 'an-internal-token-of-ours' },
  });
});
afterAll(() => fixture.close());

const ask = async (method: string, path: string, body?: object, user?: string) => {
  const answer = await fetch(`${fixture.url}/api/channels${path}`, {
    method,
    headers: {
      'content-type': 'application/json',
      ...(user === undefined
        ? {}
        : { 'x-reindeer-internal-token': 'an-internal-token-of-ours', 'x-reindeer-owner-user-id': user }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  expect(text).not.toContain(SECRET);
  return { status: answer.status, body: (text === '' ? null : JSON.parse(text)) as Record<string, unknown> };
};
const provider = async (user?: string) => {
  const { body } = await ask('GET', '/providers', undefined, user);
  return (body.providers as Record<string, unknown>[])[0];
};

test(
  'the operator enters credentials, which nobody sees again; others may neither enter nor restart',
  verifies('SEC-05'),
  async () => {
    expect((await ask('GET', '')).body).toMatchObject({
      service_running: false,
      channels: { telegram: { enabled: false, running: false, state: 'off' } },
    });
    expect(await provider()).toMatchObject({
      provider: 'telegram',
      configured: false,
      unavailable_reason: 'not_configured',
      credential_fields: [
        { name: 'bot_token', type: 'password', required: true },
        { name: 'bot_username', type: 'text', required: false },
      ],
    });
    expect((await ask('POST', '/telegram/connect')).status).toBe(409);
    const values = { bot_token: SECRET, bot_username: 'our_bot' };
    for (const [method, path] of [
      ['POST', '/telegram/runtime-config'],
      ['DELETE', '/telegram/runtime-config'],
      ['POST', '/telegram/restart'],
    ] as const)
      expect((await ask(method, path, method === 'POST' ? { values } : undefined, 'bob')).status).toBe(403);
    expect(entered).toBeNull();
    expect((await ask('POST', '/telegram/runtime-config', { values: { bot_token: '' } })).status).toBe(422);
    expect((await ask('POST', '/telegram/runtime-config', { values })).status).toBe(200);
    expect((await provider())?.credential_values).toEqual({ bot_token: '********', bot_username: 'our_bot' });
    expect((await provider('bob'))?.credential_values).toEqual({});
    const masked = { bot_token: '********', bot_username: 'new_bot' };
    expect((await ask('POST', '/telegram/runtime-config', { values: masked })).status).toBe(200);
    expect(entered).toEqual({ bot_token: SECRET, bot_username: 'new_bot' });
    expect((await ask('POST', '/telegram/restart')).body).toMatchObject({ success: true });
    expect((await ask('POST', '/icq/restart')).status).toBe(404);
  },
);

test('a user asks for codes, sees and disconnects the own accounts alone', verifies('API-14'), async () => {
  entered = { bot_token: SECRET, bot_username: 'our_bot' };
  const { status, body } = await ask('POST', '/telegram/connect', undefined, 'ann');
  expect(status).toBe(200);
  expect(body).toMatchObject({ provider: 'telegram', mode: 'deep_link', expires_in: 600 });
  expect(body.url).toBe(`https://t.me/our_bot?start=${body.code}`);
  for (let n = 0; n < 4; n += 1) await ask('POST', '/telegram/connect', undefined, 'ann');
  expect((await ask('POST', '/telegram/connect', undefined, 'ann')).status).toBe(429);

  const fence = { channel: 'telegram:1', token: 't' };
  await stores.channels.acquire({ ...fence, owner: 'one', leaseMs: 1, graceMs: 0, now: 0 });
  const { createHash } = await import('node:crypto');
  await stores.channels.redeem({
    fence,
    key: 1,
    codeHash: createHash('sha256').update(String(body.code)).digest('hex'),
    connection: {
      connectionId: 'c1',
      provider: 'telegram',
      workspaceId: '',
      externalId: '7',
      externalName: '@ann',
    },
    now: surroundings.clock.now(),
  });
  expect((await ask('GET', '/connections', undefined, 'ann')).body).toMatchObject({
    connections: [{ id: 'c1', provider: 'telegram', status: 'connected', external_account_name: '@ann' }],
  });
  expect((await ask('GET', '/connections', undefined, 'bob')).body).toEqual({ connections: [] });
  expect((await provider('ann'))?.connection_status).toBe('connected');
  expect((await ask('DELETE', '/connections/c1', undefined, 'bob')).status).toBe(404);
  expect((await ask('DELETE', '/connections/c1', undefined, 'ann')).status).toBe(204);
  expect((await ask('DELETE', '/connections/c1', undefined, 'ann')).status).toBe(404);
});
