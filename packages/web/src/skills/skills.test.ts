import { expect, test } from 'vitest';
import type { Api } from '../api/api.ts';
import { changesOf, readSecrets } from './secrets.ts';
import { installFrom, readHistory, readSkills, sorted } from './skills.ts';

test('skills are read with care, the own ones first', () => {
  const skills = readSkills({
    skills: [
      { name: 'b', enabled: true, required_secrets: [{ name: 'KEY', optional: true }, 5] },
      { name: 'a', editable: true, allowed_tools: ['bash', 7] },
      { description: 'without a name' },
    ],
  });
  expect(sorted(skills).map(({ name }) => name)).toEqual(['a', 'b']);
  expect(skills[0]?.secrets).toEqual([{ name: 'KEY', optional: true }]);
  expect(skills[1]).toMatchObject({ allowedTools: ['bash'], enabled: false });
});

test('one can go back to what was before, but not to what was refused', () => {
  const history = readHistory({
    history: [
      { action: 'install', prev_content: null },
      { action: 'edit', prev_content: 'old', ts: '2026-01-01T00:00:00Z' },
      { action: 'blocked', prev_content: 'old' },
    ],
  });
  expect(history.map(({ index, hasBefore }) => [index, hasBefore])).toEqual([
    [0, false],
    [1, true],
    [2, false],
  ]);
});

test('the chat of an archive goes again, whatever becomes of it', async () => {
  const log: string[] = [];
  const api = (answer: unknown) =>
    ({
      createThread: async () => void log.push('create'),
      upload: async () => ({
        files: [{ name: 'x.skill', path: '/mnt/user-data/uploads/x.skill', size: 1 }],
        skipped: [],
      }),
      deleteThread: async () => void log.push('delete'),
      rest: {
        send: async (_method: string, _path: string, body: unknown) => {
          log.push(JSON.stringify(body));
          if (answer instanceof Error) throw answer;
          return answer;
        },
      },
    }) as unknown as Api;
  const file = new File(['zip'], 'x.skill');
  expect(await installFrom(api({ skill_name: 'x' }), 't', file)).toBe('x');
  expect(log).toEqual(['create', '{"thread_id":"t","path":"/mnt/user-data/uploads/x.skill"}', 'delete']);
  log.length = 0;
  await expect(installFrom(api(new Error('refused')), 't', file)).rejects.toThrow('refused');
  expect(log.at(-1)).toBe('delete');
});

test('the secrets of a skill are read without values, and only what was written or is to go is sent', () => {
  const secrets = [
    { name: 'KEY', optional: false, source: 'user', value: '***' },
    { name: 'ORG', optional: true, source: null, value: null },
    { name: 'ALL', optional: true, source: 'shared', value: '***' },
    { optional: true },
  ];
  expect(readSecrets({ skill: 'x', secrets })).toEqual([
    { name: 'KEY', optional: false, source: 'user' },
    { name: 'ORG', optional: true, source: 'none' },
    { name: 'ALL', optional: true, source: 'shared' },
  ]);
  expect(readSecrets(null)).toEqual([]);
  expect(changesOf({ KEY: '', ORG: 'new', ALL: null })).toEqual({ ORG: 'new', ALL: null });
});
