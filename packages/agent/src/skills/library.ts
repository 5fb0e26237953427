import { randomUUID } from 'node:crypto';
import { mkdir, rename, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Clock, type Logger, ReindeerError, SKILLS_ROOT } from '@reindeer/protocol';
import { KeyedLock, replaceFile, type SkillFolders } from '@reindeer/sandbox';
import { isProblem, MAX_SKILL_FILE, type ParsedSkill, parseSkill, type SkillHead } from './format.ts';
import { FreshCache } from './fresh-cache.ts';
import { readJsonFile } from './json-file.ts';
import { copyFiles, entriesOf, filesOf, isHidden, readListed, type SkillFile, signatureOf } from './walk.ts';

export type SkillCategory = 'public' | 'custom' | 'legacy';

/** One skill as a user has it. */
export interface Skill extends SkillHead {
  readonly category: SkillCategory;
  readonly enabled: boolean;
  /** May the user change it? */
  readonly editable: boolean;
  /** Path below the category's folder; usually the name. */
  readonly path: string;
  /** Where a sandbox has it: `/mnt/skills/public/chart`. */
  readonly location: string;
  /** Real folder. Never shown to a model or a client. */
  readonly folder: string;
  /** The instructions. */
  readonly body: string;
  /** Of the whole `SKILL.md`. */
  readonly text: string;
  readonly signature: string;
}

/** Switches of public skills, for all users. */
export interface SkillSwitches {
  read(): Promise<Readonly<Record<string, { readonly enabled?: boolean | undefined } | undefined>>>;
  set(name: string, enabled: boolean): Promise<void>;
}

export interface SkillLibraryOptions {
  /** Folders of shared skills, the first wins: the operator's, then those that come with Reindeer. */
  readonly publicFolders: readonly string[];
  /** Read-only skills of earlier versions of the reference, shared by all users; null = none. */
  readonly legacyFolder: string | null;
  readonly folders: (userId: string) => SkillFolders;
  readonly switches: SkillSwitches;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long a look at the folders holds, in milliseconds. Default 2,000. */
  readonly freshMs?: number;
}

const MAX_SKILLS = 500;
const MAX_DEPTH = 4;
const MAX_USERS = 1_000;
/** Skills whose text is remembered while their files stay the same, and how long a text may be for that. */
const MAX_REMEMBERED = 1_000;
const MAX_REMEMBERED_TEXT = 64 * 1024;
/** Rounds until a projection has caught up with changes that go on meanwhile. */
const MAX_ROUNDS = 5;

/**
 * The skills of all users (SK-2, SK-3): shared ones and each user's own, which hide shared ones of the same name. `prepare` brings the folder that
 * sandboxes see up to date: copies of the skills that are switched on and nothing else, so that one that is off cannot be reached by any
 * tool or command. A look at the folders holds for two seconds, so that a hand edit soon counts; what is done through here counts at once.
 */
export class SkillLibrary {
  readonly #options: Required<SkillLibraryOptions>;
  /** Only memory, but the texts of all skills are in it. */
  readonly #looks: FreshCache<readonly Skill[]>;
  readonly #lock = new KeyedLock();
  readonly #told = new Set<string>();
  /** By folder. Only spares the reading: with another signature it counts no more. */
  readonly #remembered = new Map<string, Pick<Skill, 'signature' | 'text'> & { readonly parsed: ParsedSkill }>();

  constructor(options: SkillLibraryOptions) {
    this.#options = { freshMs: 2_000, ...options };
    this.#looks = new FreshCache({ ...this.#options, most: MAX_USERS });
  }

  /** All skills of a user, by name. A skill that cannot be read is left out and logged once. */
  list(userId: string): Promise<readonly Skill[]> {
    return this.#looks.get(userId, () => this.#look(userId));
  }

  async get(userId: string, name: string): Promise<Skill | null> {
    return (await this.list(userId)).find((skill) => skill.name === name) ?? null;
  }

  /** Forgets what was seen; the next look is at the folders. */
  invalidate(userId?: string): void {
    if (userId === undefined) this.#looks.clear();
    else this.#looks.delete(userId);
  }

  /**
   * Switches a skill on or off: a shared one for everybody, a user's own for that user. Sandboxes show it when this resolves.
   *
   * @throws ReindeerError `not_found`
   */
  async setEnabled(userId: string, name: string, enabled: boolean): Promise<Skill> {
    this.invalidate(userId);
    const skill = await this.get(userId, name);
    if (skill === null) throw new ReindeerError('not_found', `There is no skill "${name}".`);
    if (skill.category === 'public') {
      await this.#options.switches.set(name, enabled);
      this.invalidate();
    } else {
      await this.#lock.run(`states:${userId}`, async () => {
        const file = this.#options.folders(userId).states;
        const states = await readStates(file);
        await replaceFile(file, `${JSON.stringify({ ...states, [name]: { enabled } }, null, 2)}\n`);
      });
      this.invalidate(userId);
    }
    const skills = await this.prepare(userId);
    return skills.find((one) => one.name === name) ?? { ...skill, enabled };
  }

  /**
   * Brings what the user's sandboxes see up to date, and answers all skills. One at a time for each user; another process that does the same
   * comes to the same end, since each looks again after its work until nothing has changed.
   */
  prepare(userId: string): Promise<readonly Skill[]> {
    return this.#lock.run(`view:${userId}`, async () => {
      for (let round = 1; ; round += 1) {
        const skills = await this.list(userId);
        const changed = await this.#project(userId, skills);
        if (!changed || round >= MAX_ROUNDS) return skills;
        this.invalidate(userId);
      }
    });
  }

  async #look(userId: string): Promise<readonly Skill[]> {
    const { publicFolders, legacyFolder, folders, switches } = this.#options;
    const own = folders(userId);
    const [shared, states] = await Promise.all([switches.read(), readStates(own.states)]);
    const found = new Map<string, Skill>();
    const add = async (root: string, category: SkillCategory): Promise<void> => {
      const enabledBy = category === 'public' ? shared : states;
      for (const path of await skillPaths(root)) {
        if (found.size >= MAX_SKILLS) return this.#tellOnce(`more than ${MAX_SKILLS} skills`, { limit: MAX_SKILLS });
        const skill = await this.#read(root, path, category, (name) => enabledBy[name]?.enabled !== false);
        // The first wins: a user's own hides a shared one.
        if (skill !== null && !found.has(skill.name)) found.set(skill.name, skill);
      }
    };
    await add(own.custom, 'custom');
    if (legacyFolder !== null) await add(legacyFolder, 'legacy');
    for (const folder of publicFolders) await add(folder, 'public');
    return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async #read(
    root: string,
    path: string,
    category: SkillCategory,
    isEnabled: (name: string) => boolean,
  ): Promise<Skill | null> {
    const folder = join(root, path);
    try {
      const files = await filesOf(folder);
      const signature = signatureOf(files);
      const known = this.#remembered.get(folder);
      const size = files.find((file) => file.path === 'SKILL.md')?.size ?? 0;
      const text =
        known?.signature === signature
          ? known.text
          : size > MAX_SKILL_FILE * 4
            ? 'x'.repeat(MAX_SKILL_FILE + 1)
            : await readListed(join(folder, 'SKILL.md'), MAX_SKILL_FILE * 4);
      const parsed = known?.signature === signature ? known.parsed : parseSkill(text);
      if (isProblem(parsed)) {
        this.#tellOnce(`${folder}: ${parsed.reason}`, {
          file: join(folder, 'SKILL.md'),
          line: parsed.line,
          reason: parsed.reason,
        });
        return null;
      }
      this.#remember(folder, { signature, text, parsed });
      return {
        ...parsed.head,
        category,
        enabled: isEnabled(parsed.head.name),
        editable: category === 'custom',
        path,
        location: `${SKILLS_ROOT}/${category}/${path}`,
        folder,
        body: parsed.body,
        text,
        signature,
      };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      this.#tellOnce(`${folder}: ${String(error)}`, {
        file: folder,
        reason: ReindeerError.is(error) ? error.message : String((error as Error).message),
      });
      return null;
    }
  }

  #remember(folder: string, read: Pick<Skill, 'signature' | 'text'> & { readonly parsed: ParsedSkill }): void {
    this.#remembered.delete(folder);
    if (read.text.length > MAX_REMEMBERED_TEXT) return;
    this.#remembered.set(folder, read);
    const [oldest] = this.#remembered.keys();
    if (this.#remembered.size > MAX_REMEMBERED && oldest !== undefined) this.#remembered.delete(oldest);
  }

  #tellOnce(key: string, fields: Readonly<Record<string, unknown>>): void {
    if (this.#told.has(key) || this.#told.size >= MAX_SKILLS) return;
    this.#told.add(key);
    this.#options.logger.warn('A skill is left out', fields);
  }

  /** Answers whether anything had to be done. */
  async #project(userId: string, skills: readonly Skill[]): Promise<boolean> {
    const { view } = this.#options.folders(userId);
    const manifest = `${dirname(view)}/.view.json`;
    const wanted = new Map(
      skills.filter((skill) => skill.enabled).map((skill) => [`${skill.category}/${skill.path}`, skill]),
    );
    const present = await readManifest(manifest);
    const there = new Set(await skillPaths(view, MAX_DEPTH + 1));
    const stale = [...there].filter((path) => !wanted.has(path));
    const missing = [...wanted].filter(([path, skill]) => !there.has(path) || present[path] !== skill.signature);
    if (stale.length === 0 && missing.length === 0) return false;
    await mkdir(view, { recursive: true, mode: 0o755 });
    for (const path of stale) await take(view, path);
    for (const [path, skill] of missing) {
      const files: SkillFile[] = await filesOf(skill.folder);
      const fresh = `${dirname(view)}/.new-${randomUUID()}`;
      try {
        await copyFiles(skill.folder, fresh, files);
        await place(fresh, view, path);
      } catch (error) {
        // Deleted or changed meanwhile: the next round looks anew.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
        wanted.delete(path);
      } finally {
        await rm(fresh, { recursive: true, force: true });
      }
    }
    const signatures = Object.fromEntries([...wanted].map(([path, skill]) => [path, skill.signature]));
    await replaceFile(manifest, JSON.stringify(signatures));
    return true;
  }
}

/** Folders with a `SKILL.md`, relative to the root. Below one, no more are looked for (SK-2). */
async function skillPaths(root: string, depth = MAX_DEPTH): Promise<string[]> {
  const found: string[] = [];
  const walk = async (path: string, left: number): Promise<void> => {
    const entries = await entriesOf(join(root, path));
    if (path !== '' && entries.some((entry) => entry.name === 'SKILL.md' && entry.isFile())) {
      found.push(path);
      return;
    }
    if (left === 0 || found.length >= MAX_SKILLS) return;
    for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1)))
      if (entry.isDirectory() && !isHidden(entry.name))
        await walk(path === '' ? entry.name : `${path}/${entry.name}`, left - 1);
  };
  await walk('', depth);
  return found;
}

/** Takes a folder out of the view at once, then removes it and the empty folders above it. */
async function take(view: string, path: string): Promise<void> {
  const gone = `${dirname(view)}/.gone-${randomUUID()}`;
  try {
    await rename(join(view, path), gone);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  await rm(gone, { recursive: true, force: true });
  for (let above = dirname(path); above !== '.' && above !== ''; above = dirname(above))
    await rmdir(join(view, above)).catch(() => {});
}

/** Puts a folder where another may be. Another process may do the same, or take the empty folder above away, at any moment. */
async function place(fresh: string, view: string, path: string): Promise<void> {
  for (let left = 5; ; left -= 1) {
    await take(view, path);
    await mkdir(dirname(join(view, path)), { recursive: true, mode: 0o755 });
    try {
      return await rename(fresh, join(view, path));
    } catch (error) {
      if (left === 0 || !['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? ''))
        throw error;
    }
  }
}

type States = Record<string, { readonly enabled?: boolean | undefined } | undefined>;

async function readStates(file: string): Promise<States> {
  const value = await readJsonFile(
    file,
    'The switches of your skills cannot be read: the file _skill_states.json is damaged. Repair it or remove it.',
  );
  return value as States;
}

async function readManifest(file: string): Promise<Readonly<Record<string, unknown>>> {
  // A broken one means that everything is copied anew.
  return await readJsonFile(file, '').catch(() => ({}));
}
