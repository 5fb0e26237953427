import {
  chmod,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { skillFolders } from '@reindeer/sandbox';
import { LogRecorder, VirtualClock, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SkillLibrary } from './library.ts';
import { skillsSection } from './prompt.ts';

let root: string;
let clock: VirtualClock;
let logger: LogRecorder;
let switches: Record<string, { enabled: boolean }>;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'reindeer-skills-'));
  clock = new VirtualClock();
  logger = new LogRecorder();
  switches = {};
});
afterEach(() => rm(root, { recursive: true, force: true }));

const folders = (userId: string) => skillFolders(`${root}/home`, userId);
const library = () =>
  new SkillLibrary({
    publicFolders: [`${root}/operator`, `${root}/bundled`],
    legacyFolder: `${root}/legacy`,
    folders,
    switches: {
      read: async () => switches,
      set: async (name, enabled) => {
        switches = { ...switches, [name]: { enabled } };
      },
    },
    clock,
    logger,
  });

async function put(file: string, text: string, mode = 0o644): Promise<void> {
  await mkdir(dirname(join(root, file)), { recursive: true });
  await writeFile(join(root, file), text);
  await chmod(join(root, file), mode);
}
const skill = (folder: string, name: string, description = `About ${name}`): Promise<void> =>
  put(`${folder}/SKILL.md`, `---\nname: ${name}\ndescription: ${description}\n---\nDo ${name}.\n`);
const own = (userId: string, path: string): string => `${folders(userId).custom.slice(root.length + 1)}/${path}`;

/** Files that a sandbox of the user sees. */
async function seen(userId: string): Promise<string[]> {
  const files: string[] = [];
  const { view } = folders(userId);
  const walk = async (path: string): Promise<void> => {
    for (const entry of await readdir(join(view, path), { withFileTypes: true }).catch(() => []))
      if (entry.isDirectory()) await walk(join(path, entry.name));
      else files.push(join(path, entry.name));
  };
  await walk('');
  return files.sort();
}

describe('skills', () => {
  test(
    'shared and own ones together; nested categories; below a skill no more are looked for; hidden folders are skipped',
    verifies('SK-2'),
    async () => {
      await skill('bundled/chart', 'chart');
      await skill('bundled/office/slides', 'slide-deck');
      await skill('bundled/chart/examples/inner', 'inner');
      await skill('bundled/.git/x', 'hidden');
      await skill('legacy/old', 'old');
      await skill(own('u', 'mine'), 'mine');
      await skill(own('other', 'theirs'), 'theirs');
      const found = await library().list('u');
      expect(found.map(({ name, category, location, editable }) => [name, category, location, editable])).toEqual([
        ['chart', 'public', '/mnt/skills/public/chart', false],
        ['mine', 'custom', '/mnt/skills/custom/mine', true],
        ['old', 'legacy', '/mnt/skills/legacy/old', false],
        ['slide-deck', 'public', '/mnt/skills/public/office/slides', false],
      ]);
    },
  );

  test('a user’s own hides a shared one; the operator’s hides the one that comes along', verifies('SK-2'), async () => {
    await skill('bundled/chart', 'chart', 'bundled');
    await skill('operator/chart', 'chart', 'operator');
    await skill(own('u', 'chart'), 'chart', 'own');
    const texts = async (userId: string) => (await library().list(userId)).map((one) => one.description);
    expect([await texts('u'), await texts('v')]).toEqual([['own'], ['operator']]);
  });

  test('one that cannot be read is left out and named once, with the line', verifies('SK-1', 'SK-2'), async () => {
    await skill('bundled/good', 'good');
    await put('bundled/bad/SKILL.md', '---\nname: bad\ndescription: Use: now\n---\n');
    const skills = library();
    expect((await skills.list('u')).map((one) => one.name)).toEqual(['good']);
    await clock.advance(10_000);
    await skills.list('u');
    expect(logger.lines.map((line) => line.fields)).toEqual([
      expect.objectContaining({ line: 3, reason: expect.stringMatching(/needs quotes/) }),
    ]);
  });

  test(
    'sandboxes see exactly the skills that are on, readable and runnable, without links',
    verifies('SK-3'),
    async () => {
      await skill('bundled/chart', 'chart');
      await put('bundled/chart/scripts/draw.sh', '#!/bin/sh\n', 0o700);
      await put('bundled/chart/data.csv', 'a', 0o600);
      await symlink('/etc/passwd', join(root, 'bundled/chart/leak'));
      await skill('bundled/other', 'other');
      switches = { other: { enabled: false } };
      await library().prepare('u');
      expect(await seen('u')).toEqual([
        'public/chart/SKILL.md',
        'public/chart/data.csv',
        'public/chart/scripts/draw.sh',
      ]);
      const mode = async (file: string) => (await stat(join(folders('u').view, file))).mode & 0o777;
      expect([
        await mode('public/chart/data.csv'),
        await mode('public/chart/scripts/draw.sh'),
        await mode('public/chart'),
      ]).toEqual([0o644, 0o755, 0o755]);
    },
  );

  test(
    'switched off it is gone before the answer, for everybody or for its owner; switched on it is back',
    verifies('SK-3'),
    async () => {
      await skill('bundled/chart', 'chart');
      await skill(own('u', 'mine'), 'mine');
      const skills = library();
      await skills.prepare('u');
      await skills.prepare('v');
      expect((await skills.setEnabled('u', 'mine', false)).enabled).toBe(false);
      expect(await seen('u')).toEqual(['public/chart/SKILL.md']);
      await skills.setEnabled('u', 'chart', false);
      expect(await seen('u')).toEqual([]);
      await skills.prepare('v');
      expect(await seen('v')).toEqual([]);
      await skills.setEnabled('u', 'mine', true);
      expect(await seen('u')).toEqual(['custom/mine/SKILL.md']);
      // A new process finds the switches as they were left.
      expect((await library().list('u')).map((one) => [one.name, one.enabled])).toEqual([
        ['chart', false],
        ['mine', true],
      ]);
      await expect(skills.setEnabled('u', 'nothing', true)).rejects.toThrow(/no skill "nothing"/);
    },
  );

  test(
    'a changed, a renamed and a removed skill arrive; nothing is copied when nothing changed',
    verifies('SK-3'),
    async () => {
      await skill('bundled/chart', 'chart', 'one');
      const skills = library();
      await skills.prepare('u');
      const before = await stat(join(folders('u').view, 'public/chart'));
      await clock.advance(10_000);
      await skills.prepare('u');
      expect((await stat(join(folders('u').view, 'public/chart'))).ino).toBe(before.ino);
      await skill('bundled/chart', 'chart', 'a longer one');
      await clock.advance(10_000);
      await skills.prepare('u');
      expect(await readFile(join(folders('u').view, 'public/chart/SKILL.md'), 'utf8')).toContain('a longer one');
      await rm(join(root, 'bundled/chart'), { recursive: true });
      await skill('bundled/plot', 'plot');
      await clock.advance(10_000);
      await skills.prepare('u');
      expect(await seen('u')).toEqual(['public/plot/SKILL.md']);
      expect((await readdir(dirname(folders('u').view))).filter((name) => /new|gone|tmp/.test(name))).toEqual([]);
    },
  );

  test('several processes and switches at once come to one end', verifies('SK-3'), async () => {
    for (const name of ['a', 'b', 'c', 'd']) await skill(own('u', name), name);
    const [one, two] = [library(), library()];
    await Promise.all([
      one.prepare('u'),
      two.prepare('u'),
      one.setEnabled('u', 'a', false),
      one.setEnabled('u', 'b', false),
      one.setEnabled('u', 'c', false),
      two.prepare('u').catch(() => []),
    ]);
    two.invalidate();
    await two.prepare('u');
    expect(await seen('u')).toEqual(['custom/d/SKILL.md']);
  });

  test(
    'a file that goes while the skill is copied fails no run: the skill is copied anew',
    verifies('SK-3'),
    async () => {
      const skills = library();
      await skill(own('u', 'mine'), 'mine');
      await put(own('u', 'mine/a-large'), '');
      await truncate(join(root, own('u', 'mine/a-large')), 200 * 1024 * 1024);
      await put(own('u', 'mine/z-goes'), 'x');
      const prepared = skills.prepare('u');
      prepared.catch(() => {});
      const copying = async (): Promise<boolean> =>
        (await readdir(dirname(folders('u').view)).catch(() => [])).some((name) => name.startsWith('.new-'));
      while (!(await copying()));
      await rm(join(root, own('u', 'mine/z-goes')));
      await rm(join(root, own('u', 'mine/a-large')));
      expect((await prepared).map(({ name }) => name)).toEqual(['mine']);
      expect(await seen('u')).toEqual(['custom/mine/SKILL.md']);
    },
  );

  test('a skill that was replaced counts at once, also when size and time are the same', verifies('SK-2'), async () => {
    const skills = library();
    await skill('bundled/chart', 'chart', 'First');
    const file = join(root, 'bundled/chart/SKILL.md');
    const time = new Date(1_700_000_000_000);
    await utimes(file, time, time);
    expect((await skills.list('u'))[0]?.description).toBe('First');
    await skill('beside', 'chart', 'Later');
    await utimes(join(root, 'beside/SKILL.md'), time, time);
    await rename(join(root, 'beside/SKILL.md'), file);
    skills.invalidate();
    expect((await skills.list('u'))[0]?.description).toBe('Later');
  });

  test('a damaged file of switches is no reason to switch everything on', verifies('SK-3'), async () => {
    await skill(own('u', 'mine'), 'mine');
    await put(folders('u').states.slice(root.length + 1), '{"mine": {"enab');
    await expect(library().list('u')).rejects.toThrow(/damaged/);
  });

  test(
    'the prompt names what is on with its place, and what is off as forbidden; text from outside cannot leave its element',
    verifies('SK-4'),
    async () => {
      await skill('bundled/chart', 'chart', 'Draws & plots');
      await skill('bundled/other', 'other');
      await skill(own('u', 'mine'), 'mine');
      switches = { other: { enabled: false } };
      const section = skillsSection(await library().list('u'));
      expect(section).toContain(
        '<skill><name>chart</name><description>Draws &amp; plots</description><location>/mnt/skills/public/chart/SKILL.md</location></skill>',
      );
      expect(section).toMatch(/mine.*the user’s own/);
      expect(section).toMatch(/<disabled_skills>\n.*: other\n/);
      expect(section).not.toContain('/mnt/skills/public/other');
      expect(skillsSection([])).toBe('');
    },
  );
});

/** Packages of other projects that are installed here anyway; a folder with more of them may be named, such as a `node_modules`. */
const FOREIGN = [
  join(import.meta.dirname, '../../../../node_modules/playwright-core'),
  process.env.REINDEER_FOREIGN_SKILLS,
];

test('skills of other projects are listed and shown as they are', verifies('SK-1', 'SK-2', 'SK-3'), async () => {
  const found: string[] = [];
  for (const from of FOREIGN)
    for (const entry of from === undefined ? [] : await readdir(from, { recursive: true, withFileTypes: true }))
      if (entry.isFile() && entry.name === 'SKILL.md') found.push(entry.parentPath);
  expect(found.length).toBeGreaterThan(2);
  for (const [at, folder] of found.entries()) await cp(folder, join(root, `operator/${at}`), { recursive: true });
  const skills = await library().prepare('ann');
  expect(logger.lines.filter(({ level }) => level === 'warn')).toEqual([]);
  expect(skills).toHaveLength(found.length);
  for (const { path } of skills) {
    const shown = await readFile(join(folders('ann').view, 'public', path, 'SKILL.md'));
    expect(shown).toEqual(await readFile(join(root, 'operator', path, 'SKILL.md')));
  }
});
