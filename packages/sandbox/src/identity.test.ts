import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { skillFolders, threadPaths } from './folders.ts';
import { foreignUserId, isPrivateUid, privateUid, safeUserId } from './identity.ts';

test('any user id becomes one safe folder name', () => {
  expect(safeUserId('default')).toBe('default');
  expect(safeUserId('Ada@Example.com')).toMatch(/^ada-example-com--[0-9a-f]{16}$/);
  expect(safeUserId('ада')).toMatch(/^user--[0-9a-f]{16}$/);
  expect(() => safeUserId('')).toThrow('user id');
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), fc.string({ minLength: 1 }), (one, two) => {
      const safe = safeUserId(one);
      expect(safe).toMatch(/^[a-z0-9_-]{1,64}$/);
      expect(safeUserId(safe)).toBe(safe);
      // Two people share a folder only if they are the same person, also on disks that ignore case.
      expect(safeUserId(two) === safe).toBe(one === two || two === safe || one === safeUserId(two));
    }),
  );
  expect(safeUserId('ada@example.com')).not.toBe(safeUserId('ada.example.com'));
  expect(safeUserId('Ada')).not.toBe(safeUserId('ada'));
});

test('nobody takes the place of somebody else by choosing a name that looks like an id of ours', () => {
  const ada = safeUserId('Ada@Example.com');
  expect(foreignUserId('Ada@Example.com')).toBe(ada);
  expect(foreignUserId('bob_7')).toBe('bob_7');
  expect(foreignUserId(ada)).not.toBe(ada);
  expect(safeUserId(foreignUserId(ada))).toBe(foreignUserId(ada));
});

test('a thread id that could leave its folder is refused', verifies('ID-1', 'RE-07'), () => {
  for (const id of ['', '..', 'a/b', 'a.b', 'x'.repeat(65), 'a\0', 'ä']) {
    expect(() => threadPaths('/home', 'default', id), id).toThrow('thread id');
  }
  expect(threadPaths('/home', 'default', 'A_b-9').userData).toBe('/home/users/default/threads/A_b-9/user-data');
});

test('the layout is per user and thread', verifies('ID-3'), () => {
  const { folders } = threadPaths('/home', 'Bob', 't1');
  expect(folders.workspace).toBe(`/home/users/${safeUserId('Bob')}/threads/t1/user-data/workspace`);
  expect(folders.uploads).toBe(`/home/users/${safeUserId('Bob')}/threads/t1/user-data/uploads`);
  expect(folders.outputs).toBe(`/home/users/${safeUserId('Bob')}/threads/t1/user-data/outputs`);
  const skills = `/home/users/${safeUserId('Bob')}/skills`;
  expect(threadPaths('/home', 'Bob', 't1').skills).toBe(`${skills}/view`);
  expect(skillFolders('/home', 'Bob')).toEqual({
    custom: `${skills}/custom`,
    view: `${skills}/view`,
    history: `${skills}/.history`,
    states: `${skills}/_skill_states.json`,
    secrets: `${skills}/_skill_secrets.json`,
  });
});

test('private user ids lie beyond all usual ranges and stay the same', () => {
  const ids = new Set<number>();
  for (let thread = 0; thread < 1_000; thread += 1) ids.add(privateUid('/home', 'default', `t${thread}`));
  expect(ids.size).toBe(1_000);
  for (const id of ids) expect(id < 2 ** 31 && isPrivateUid(id)).toBe(true);
  expect(privateUid('/home', 'default', 't1')).toBe(privateUid('/home', 'default', 't1'));
  expect(privateUid('/other', 'default', 't1')).not.toBe(privateUid('/home', 'default', 't1'));
});
