import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LogRecorder, testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MAX_SOUL } from './profile.ts';
import { AgentProfiles } from './store.ts';

let root: string;
let logger: LogRecorder;
let profiles: AgentProfiles;
let ahead = 0;
const make = (): AgentProfiles =>
  new AgentProfiles({
    folder: (userId) => join(root, userId, 'agents'),
    legacyFolder: join(root, 'legacy'),
    defaultSoul: join(root, 'SOUL.md'),
    userProfile: (userId) => join(root, userId, 'USER.md'),
    clock: { now: () => Date.now() + ahead, monotonic: () => 0, sleep: async () => {} },
    random: { ...testSurroundings().random, uuid: randomUUID },
    logger,
  });
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'reindeer-agents-'));
  logger = new LogRecorder();
  ahead = 0;
  profiles = make();
});
afterEach(() => rm(root, { recursive: true, force: true }));

const file = (path: string): Promise<string> => readFile(join(root, 'ann/agents', path), 'utf8');
async function put(path: string, text: string): Promise<void> {
  await mkdir(join(root, path, '..'), { recursive: true });
  await writeFile(join(root, path), text);
}

describe('custom agents', () => {
  test(
    'an agent is two files of its user; a change keeps what it does not name, keys of others and comments',
    verifies('CA-1', 'CA-2'),
    async () => {
      const made = await profiles.create('ann', 'Writer', { description: 'Writes', skills: [], soul: 'You write.' });
      expect(made).toEqual({
        name: 'writer',
        description: 'Writes',
        model: null,
        tool_groups: null,
        skills: [],
        model_settings: null,
        thinking_enabled: null,
        reasoning_effort: null,
        soul: 'You write.',
      });
      expect(await file('writer/SOUL.md')).toBe('You write.');
      await put('ann/agents/writer/config.yaml', '# mine\nname: other\nskills: [a]\ngithub:\n  repo: x/y\nmodel: m\n');
      const changed = await profiles.update('ann', 'WRITER', {
        skills: null,
        model_settings: { temperature: 0.5 },
        tool_groups: ['web'],
      });
      expect(changed).toMatchObject({ name: 'writer', skills: null, model: 'm', soul: 'You write.' });
      expect(await file('writer/config.yaml')).toBe(
        '# mine\nname: writer\ngithub:\n  repo: x/y\nmodel: m\ntool_groups:\n  - web\nmodel_settings:\n  temperature: 0.5\n',
      );
      expect(await make().get('ann', 'writer')).toEqual(changed);
      // Nobody else has it, and no other file is left.
      expect(await profiles.get('bob', 'writer')).toBeNull();
      expect((await readdir(join(root, 'ann/agents'))).sort()).toEqual(['writer']);
      expect((await readdir(join(root, 'ann/agents/writer'))).sort()).toEqual(['SOUL.md', 'config.yaml']);
      await profiles.delete('ann', 'writer');
      expect(await readdir(join(root, 'ann/agents'))).toEqual([]);
    },
  );

  test('a name is checked before any file is touched', verifies('CA-1'), async () => {
    for (const name of ['../x', '/etc', 'a b', '', 'a_b', 'x'.repeat(65), '.'])
      for (const act of [
        () => profiles.get('ann', name),
        () => profiles.create('ann', name, {}),
        () => profiles.update('ann', name, {}),
        () => profiles.upsert('ann', name, {}),
        () => profiles.delete('ann', name),
      ])
        await expect((async () => await act())()).rejects.toMatchObject({ code: 'validation_failed' });
    for (const name of ['default', 'lead-agent'])
      await expect((async () => await profiles.create('ann', name, {}))()).rejects.toMatchObject({
        code: 'validation_failed',
      });
    expect(await readdir(root)).toEqual([]);
  });

  test(
    'a name is taken once; agents of earlier versions keep theirs and are not changed',
    verifies('CA-2'),
    async () => {
      await put('legacy/old/config.yaml', 'name: old\n');
      await profiles.create('ann', 'one', {});
      await expect(profiles.create('ann', 'ONE', { description: 'again' })).rejects.toMatchObject({ code: 'conflict' });
      await expect(profiles.create('ann', 'old', {})).rejects.toMatchObject({ code: 'conflict' });
      await expect(profiles.update('ann', 'old', {})).rejects.toThrow('Copy its folder');
      await expect(profiles.update('ann', 'two', {})).rejects.toMatchObject({ code: 'not_found' });
      expect(await profiles.available('ann', 'Old')).toEqual({ available: false, name: 'old' });
      expect(await profiles.available('ann', 'one')).toEqual({ available: false, name: 'one' });
      expect(await profiles.available('ann', 'two')).toEqual({ available: true, name: 'two' });
      const many = await Promise.allSettled([1, 2, 3].map(() => profiles.create('ann', 'two', {})));
      expect(many.map((one) => one.status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
      expect((await profiles.list('ann')).map((agent) => agent.name)).toEqual(['one', 'two']);
    },
  );

  test('a change that a crash cut short is whole for every reader', verifies('TOOL-11'), async () => {
    await profiles.create('ann', 'w', { description: 'old', soul: 'old' });
    // As after a kill between the two files.
    await put('ann/agents/w/.change.json', JSON.stringify({ config: 'name: w\ndescription: new\n', soul: 'new' }));
    await put('ann/agents/w/SOUL.md', 'new');
    expect(await make().get('ann', 'w')).toMatchObject({ description: 'new', soul: 'new' });
    expect(await file('w/config.yaml')).toContain('old');
    // It might be the change of another process, at this moment: nobody else changes the agent, or ends that one's work.
    await expect(profiles.update('ann', 'w', { soul: 'newer' })).rejects.toMatchObject({ code: 'conflict' });
    expect(await profiles.list('ann')).toMatchObject([{ description: 'new', soul: 'new' }]);
    ahead = 61_000;
    expect(await profiles.get('ann', 'w')).toMatchObject({ description: 'new', soul: 'new' });
    expect(await file('w/config.yaml')).toContain('new');
    expect((await readdir(join(root, 'ann/agents/w'))).sort()).toEqual(['SOUL.md', 'config.yaml']);
    expect(await profiles.update('ann', 'w', { soul: 'newer' })).toMatchObject({ description: 'new', soul: 'newer' });
  });

  test('readers never see one new file beside an old one', verifies('TOOL-11'), async () => {
    await profiles.create('ann', 'w', { description: '0', soul: '0' });
    const other = make();
    const writing = (async () => {
      for (let turn = 1; turn <= 20; turn += 1)
        await profiles.update('ann', 'w', { description: String(turn), soul: String(turn) });
      return 'done' as const;
    })();
    let seen = 0;
    for (let over = false; !over; seen += 1) {
      const agent = await other.get('ann', 'w').catch((error: { code?: string }) => {
        // Changed too fast: said so, and never half.
        expect(error.code).toBe('conflict');
        return null;
      });
      if (agent !== null) expect(agent.soul).toBe(agent.description);
      over = (await Promise.race([writing, Promise.resolve(null)])) === 'done';
    }
    expect(seen).toBeGreaterThan(1);
  });

  test('a broken file costs its own agent only, and says where', async () => {
    await profiles.create('ann', 'good', {});
    await put('ann/agents/bad/config.yaml', 'name: bad\nskills: [a\n');
    await put('ann/agents/wrong/config.yaml', 'skills: a\n');
    await mkdir(join(root, 'ann/agents/memory/facts'), { recursive: true });
    await symlink(join(root, 'ann/agents/good'), join(root, 'ann/agents/link'));
    expect((await profiles.list('ann')).map((agent) => agent.name)).toEqual(['good']);
    await expect(profiles.get('ann', 'bad')).rejects.toThrow(/agents\/bad\/config.yaml, line \d/);
    await expect(profiles.get('ann', 'wrong')).rejects.toThrow('skills must be a list of skills');
    expect(await profiles.get('ann', 'link')).toBeNull();
    // One that only remembers is no agent: it cannot be removed, and an agent can move in.
    await expect(profiles.delete('ann', 'memory')).rejects.toMatchObject({ code: 'not_found' });
    expect(await profiles.create('ann', 'memory', { soul: 'x' })).toMatchObject({ soul: 'x' });
    expect(await make().get('ann', 'memory')).toMatchObject({ soul: 'x' });
    expect((await readdir(join(root, 'ann/agents/memory'))).sort()).toEqual(['SOUL.md', 'config.yaml', 'facts']);
    // A failed making leaves nothing.
    await expect(
      (async () => await profiles.create('ann', 'long', { soul: 'x'.repeat(MAX_SOUL + 1) }))(),
    ).rejects.toMatchObject({ code: 'too_large' });
    expect(await profiles.get('ann', 'long')).toBeNull();
  });

  test('the soul of the default agent and the user’s profile', async () => {
    expect(await profiles.defaultSoul()).toBe('');
    await put('SOUL.md', ' \n');
    expect(await profiles.defaultSoul()).toBe('');
    await put('SOUL.md', 'Be kind.');
    expect(await profiles.defaultSoul()).toBe('Be kind.');
    expect(await profiles.userProfile('ann')).toBeNull();
    await profiles.setUserProfile('ann', 'I write.');
    expect(await profiles.userProfile('ann')).toBe('I write.');
    expect(await profiles.userProfile('bob')).toBeNull();
    await profiles.setUserProfile('ann', '');
    expect(await profiles.userProfile('ann')).toBeNull();
  });
});
