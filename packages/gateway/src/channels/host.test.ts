import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type CreateRun, EMPTY_REQUEST, type RunService, type ThreadService } from '@reindeer/protocol';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { fileCredentials } from './credentials.ts';
import { channelHost, type HostParts } from './host.ts';

const created: CreateRun[] = [];
const runs = {
  create: async (input: CreateRun) => {
    created.push(input);
    return { outcome: 'thread_not_found' } as const;
  },
} as unknown as RunService;
const parts: HostParts = {
  runs,
  // Neither is asked in these tests: what is refused is refused before.
  threads: {} as ThreadService,
  sandboxes: {
    files: () => {
      throw new Error('No file may be looked at.');
    },
  },
  surroundings: testSurroundings(),
  accepting: () => true,
  uploads: () => ({ maxFileSize: 1_000, convert: null }),
  assistants: ['lead_agent'],
  models: () => ['small'],
  hasAgent: async (userId, name) => userId === 'ann' && name === 'my-writer',
  remembered: async () => ['x'.repeat(300)],
  skills: async () => [],
  authorization: () => null,
  refresh: async () => {},
};
const run: CreateRun = {
  threadId: 't',
  userId: 'ann',
  assistantId: 'lead_agent',
  request: EMPTY_REQUEST,
  metadata: {},
  multitaskStrategy: 'reject',
  onDisconnect: 'continue',
  crashPolicy: null,
  createThread: false,
  idempotencyKey: 'k',
};
let folder: string;
beforeEach(async () => {
  created.length = 0;
  folder = await mkdtemp(join(tmpdir(), 'reindeer-channels-'));
});
afterEach(() => rm(folder, { recursive: true }));

test('no run is made once the stop has begun, also while the configuration was read', verifies('GW-20'), async () => {
  let accepting = true;
  const host = channelHost({
    ...parts,
    accepting: () => accepting,
    refresh: async () => {
      accepting = false;
    },
  });
  await expect(host.runs.create(run)).rejects.toMatchObject({ code: 'shutting_down' });
  expect(created).toEqual([]);
  await channelHost(parts).runs.create(run);
  expect(created).toEqual([run]);
});

test('agents are found by name, for whom they are; what is remembered is told in short', async () => {
  const host = channelHost(parts);
  expect(await host.agent('ann', null)).toEqual({ assistantId: 'lead_agent', agentName: null });
  expect(await host.agent('ann', 'lead_agent')).toEqual({ assistantId: 'lead_agent', agentName: null });
  expect(await host.agent('ann', 'My_Writer')).toEqual({ assistantId: 'lead_agent', agentName: 'my-writer' });
  expect(await host.agent('bob', 'my-writer')).toBeNull();
  expect((await host.memory('ann'))?.[0]).toHaveLength(200);
});

test('only outputs go out, by plain paths; names of uploads are those of the page', async () => {
  const host = channelHost(parts);
  const at = { userId: 'ann', threadId: 't' };
  for (const path of ['/mnt/user-data/uploads/a', '/mnt/user-data/outputs/../uploads/a', '/etc/passwd'])
    expect(await host.output(at, path)).toBeNull();
  async function* none(): AsyncGenerator<Uint8Array> {}
  for (const name of ['..', 'a\\b', '']) expect(await host.save(at, name, none(), 10)).toBeNull();
});

test(
  'credentials are kept in a file of their owner’s alone; a broken one is told and not overwritten',
  verifies('SEC-05'),
  async () => {
    const store = fileCredentials(folder);
    const file = join(folder, 'channels/runtime-config.json');
    expect(await store.read('telegram')).toBeNull();
    await store.write('telegram', { bot_token: '1:x' });
    expect(await store.read('telegram')).toEqual({ bot_token: '1:x' });
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    await store.write('telegram', null);
    expect(await store.read('telegram')).toBeNull();
    await writeFile(file, '{broken');
    await expect(store.read('telegram')).rejects.toMatchObject({ code: 'configuration' });
    await expect(store.write('telegram', { bot_token: '1:y' })).rejects.toMatchObject({ code: 'configuration' });
    expect(await readFile(file, 'utf8')).toBe('{broken');
  },
);
