import { constants } from 'node:fs';
import { access, link, lstat, mkdir, open, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type Logger, type Random, ReindeerError } from '@reindeer/protocol';
import { KeyedLock, replaceFile } from '@reindeer/sandbox';
import {
  type AgentProfile,
  agentNameOf,
  changedProfile,
  isAgentName,
  MAX_PROFILE,
  MAX_SOUL,
  newAgentName,
  type ProfileChange,
  parseProfile,
} from './profile.ts';

export interface AgentProfilesOptions {
  /** `{home}/users/{user}/agents`. */
  readonly folder: (userId: string) => string;
  /** `{home}/agents` of earlier versions of the reference, shared by all users: its names are taken, and it is never written. */
  readonly legacyFolder: string | null;
  /** `{home}/SOUL.md`: the soul of the default agent. */
  readonly defaultSoul: string;
  /** The user's `USER.md`. */
  readonly userProfile: (userId: string) => string;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
}

const CONFIG = 'config.yaml';
const SOUL = 'SOUL.md';
/** Both texts of a change that has been decided. While it is there, it is what the agent is. */
const CHANGE = '.change.json';
const MAX_AGENTS = 500;
const MAX_USER_PROFILE = 65_536;
/** Looks at an agent until nothing changes meanwhile. */
const TRIES = 5;
/** A change that is so old was left by a process that is gone. */
const STALE_MS = 60_000;

interface Texts {
  readonly config: string;
  readonly soul: string;
}

/**
 * The custom agents of all users (CA-1), as files: `{name}/config.yaml` and `{name}/SOUL.md`. A folder without a `config.yaml` is no agent.
 *
 * An agent: absent → (its folder is renamed into place with both files) present → (its folder is renamed away) absent. A change of a present one
 * is decided when `.change.json` with both new texts appears, which only one can make; then the files are replaced and it is removed. A reader
 * takes the change if there is one, so that nobody, and no crash, ever sees one new file beside an old one. Changes of a user's agents are made
 * one after the other in a process; while another process makes one they are refused (`conflict`, may be tried again).
 */
export class AgentProfiles {
  readonly #options: AgentProfilesOptions;
  readonly #lock = new KeyedLock();

  constructor(options: AgentProfilesOptions) {
    this.#options = options;
  }

  /** By name. One that cannot be read is left out and logged. */
  async list(userId: string): Promise<readonly AgentProfile[]> {
    const agents: AgentProfile[] = [];
    for (const name of await this.#names(userId)) {
      try {
        const agent = await this.get(userId, name);
        if (agent !== null) agents.push(agent);
      } catch (error) {
        this.#options.logger.warn('An agent is left out', {
          agent: name,
          reason: error instanceof Error ? error.message : String(error),
        });
      }
    }
    return agents;
  }

  /**
   * Null: the user has no such agent.
   *
   * @throws ReindeerError `validation_failed` for a name that is none, before any file is touched; `configuration` for files that are wrong
   */
  async get(userId: string, given: string): Promise<AgentProfile | null> {
    const name = agentNameOf(given);
    const folder = this.#folderOf(userId, name);
    if (await this.#isStale(folder)) await this.#lock.run(userId, () => this.#finishStale(folder));
    const texts = await this.#read(folder);
    return texts === null ? null : parseProfile(name, texts.config, texts.soul);
  }

  /** Could an agent of this name be made? @throws ReindeerError `validation_failed` */
  async available(userId: string, given: string): Promise<{ readonly available: boolean; readonly name: string }> {
    const name = newAgentName(given);
    const taken = (await this.#isAgent(this.#folderOf(userId, name))) || (await this.#isLegacy(name));
    return { available: !taken, name };
  }

  /** @throws ReindeerError `validation_failed`, `conflict`, `over_capacity` */
  create(userId: string, given: string, change: ProfileChange): Promise<AgentProfile> {
    const name = newAgentName(given);
    checkSoul(change.soul);
    return this.#lock.run(userId, async () => {
      if (await this.#isAgent(this.#folderOf(userId, name)))
        throw new ReindeerError(
          'conflict',
          `There is an agent "${name}" already. Choose another name, or change that one.`,
        );
      return await this.#make(userId, name, change);
    });
  }

  /** Changes what is named and nothing else. @throws ReindeerError `validation_failed`, `not_found`, `conflict` for an agent of earlier versions */
  update(userId: string, given: string, change: ProfileChange): Promise<AgentProfile> {
    const name = agentNameOf(given);
    checkSoul(change.soul);
    return this.#lock.run(userId, async () => {
      const folder = this.#folderOf(userId, name);
      const before = await this.#read(folder);
      if (before === null) throw await this.#missing(name);
      return await this.#change(folder, name, before, change);
    });
  }

  /** Makes the agent, or changes the one that is there (TOOL-10). */
  upsert(userId: string, given: string, change: ProfileChange): Promise<AgentProfile> {
    const name = newAgentName(given);
    checkSoul(change.soul);
    return this.#lock.run(userId, async () => {
      const folder = this.#folderOf(userId, name);
      const before = await this.#read(folder);
      return before === null
        ? await this.#make(userId, name, change)
        : await this.#change(folder, name, before, change);
    });
  }

  /** Removes its folder. @throws ReindeerError `validation_failed`, `not_found`, `conflict` */
  delete(userId: string, given: string): Promise<void> {
    const name = agentNameOf(given);
    return this.#lock.run(userId, async () => {
      const folder = this.#folderOf(userId, name);
      // A folder that only remembers is no agent: it is not removed by this.
      if (!(await this.#isAgent(folder))) throw await this.#missing(name);
      const gone = join(this.#options.folder(userId), `.gone-${this.#options.random.uuid()}`);
      await rename(folder, gone);
      await rm(gone, { recursive: true, force: true });
    });
  }

  /** The soul of the default agent; '' = none. */
  async defaultSoul(): Promise<string> {
    const text = await readText(this.#options.defaultSoul, MAX_SOUL);
    return text === null || text.trim() === '' ? '' : text;
  }

  /** `USER.md`; null = none or empty. */
  async userProfile(userId: string): Promise<string | null> {
    const text = await readText(this.#options.userProfile(userId), MAX_USER_PROFILE);
    return text === null || text === '' ? null : text;
  }

  async setUserProfile(userId: string, content: string): Promise<void> {
    if (content.length > MAX_USER_PROFILE)
      throw new ReindeerError('too_large', `The profile is longer than ${MAX_USER_PROFILE} characters.`);
    await this.#lock.run(`profile:${userId}`, () => replaceFile(this.#options.userProfile(userId), content));
  }

  #folderOf(userId: string, name: string): string {
    return join(this.#options.folder(userId), name);
  }

  async #names(userId: string): Promise<readonly string[]> {
    const entries = await readdir(this.#options.folder(userId), { withFileTypes: true }).catch(nothing);
    return (entries ?? [])
      .filter((entry) => entry.isDirectory() && isAgentName(entry.name) && entry.name === entry.name.toLowerCase())
      .map((entry) => entry.name)
      .sort()
      .slice(0, MAX_AGENTS);
  }

  async #isAgent(folder: string): Promise<boolean> {
    return (await this.#read(folder)) !== null;
  }

  async #isLegacy(name: string): Promise<boolean> {
    const { legacyFolder } = this.#options;
    if (legacyFolder === null) return false;
    return await access(join(legacyFolder, name, CONFIG)).then(
      () => true,
      () => false,
    );
  }

  async #missing(name: string): Promise<ReindeerError> {
    return (await this.#isLegacy(name))
      ? new ReindeerError(
          'conflict',
          `"${name}" is a shared agent of an earlier version and cannot be changed here. Copy its folder from agents/${name} of the data folder into the agents of the user.`,
        )
      : new ReindeerError('not_found', `There is no agent "${name}".`);
  }

  async #make(userId: string, name: string, change: ProfileChange): Promise<AgentProfile> {
    const { folder: folderOf, random } = this.#options;
    if (await this.#isLegacy(name)) throw await this.#missing(name);
    if ((await this.#names(userId)).length >= MAX_AGENTS)
      throw new ReindeerError('over_capacity', `There are ${MAX_AGENTS} agents already. Remove one first.`);
    const texts: Texts = { config: changedProfile(name, null, change), soul: change.soul ?? '' };
    const agent = parseProfile(name, texts.config, texts.soul);
    const root = folderOf(userId);
    const folder = join(root, name);
    const fresh = join(root, `.new-${random.uuid()}`);
    try {
      await mkdir(fresh, { recursive: true, mode: 0o700 });
      await writeFile(join(fresh, SOUL), texts.soul, { mode: 0o600 });
      await writeFile(join(fresh, CONFIG), texts.config, { mode: 0o600 });
      await rename(fresh, folder);
    } catch (error) {
      await rm(fresh, { recursive: true, force: true });
      if (!['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
      // There is a folder that is no agent, such as one that only remembers: the agent moves in.
      await this.#write(folder, texts);
    }
    return agent;
  }

  async #change(folder: string, name: string, before: Texts, change: ProfileChange): Promise<AgentProfile> {
    const texts: Texts = { config: changedProfile(name, before.config, change), soul: change.soul ?? before.soul };
    const agent = parseProfile(name, texts.config, texts.soul);
    await this.#write(folder, texts);
    return agent;
  }

  async #write(folder: string, texts: Texts): Promise<void> {
    await this.#finishStale(folder);
    const fresh = join(folder, `${CHANGE}.${this.#options.random.uuid()}`);
    try {
      await replaceFile(fresh, JSON.stringify(texts));
      // Decided here, unless another process is at it.
      await link(fresh, join(folder, CHANGE));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw busy();
      throw error;
    } finally {
      await rm(fresh, { force: true });
    }
    await finishChange(folder);
  }

  /** A change that a crash left behind: it hides what is edited by hand. One that is being made is done in milliseconds. */
  async #isStale(folder: string): Promise<boolean> {
    const info = await lstat(join(folder, CHANGE)).catch(nothing);
    return info !== null && this.#options.clock.now() - info.mtimeMs > STALE_MS;
  }

  async #finishStale(folder: string): Promise<void> {
    if (await this.#isStale(folder)) await finishChange(folder);
  }

  /** Both texts, of one and the same moment. Null: no agent. */
  async #read(folder: string): Promise<Texts | null> {
    const info = await lstat(folder).catch(nothing);
    if (info == null || !info.isDirectory()) return null;
    const config = () => readText(join(folder, CONFIG), MAX_PROFILE);
    for (let tries = TRIES; tries > 0; tries -= 1) {
      const decided = await decidedChange(folder);
      if (decided !== null) return decided;
      const before = await config();
      const soul = await readText(join(folder, SOUL), MAX_SOUL);
      if ((await decidedChange(folder)) !== null || (await config()) !== before) continue;
      return before === null ? null : { config: before, soul: soul ?? '' };
    }
    throw busy();
  }
}

const busy = (): ReindeerError =>
  new ReindeerError('conflict', 'The agent is being changed by somebody else. Try again.', { retryable: true });

async function decidedChange(folder: string): Promise<Texts | null> {
  // A character may become six in JSON.
  const text = await readText(join(folder, CHANGE), 6 * (MAX_PROFILE + MAX_SOUL) + 100);
  if (text === null) return null;
  const { config, soul } = JSON.parse(text) as Texts;
  return { config, soul };
}

async function finishChange(folder: string): Promise<void> {
  const texts = await decidedChange(folder);
  if (texts === null) return;
  await replaceFile(join(folder, SOUL), texts.soul);
  await replaceFile(join(folder, CONFIG), texts.config);
  await rm(join(folder, CHANGE), { force: true });
}

/** A small regular file that is no link; null = there is none. */
async function readText(file: string, maxCharacters: number): Promise<string | null> {
  // Neither a link nor a FIFO: both could only have been put there by hand, and the latter would never answer.
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(nothing);
  if (handle == null) return null;
  try {
    const info = await handle.stat();
    if (!info.isFile()) throw new ReindeerError('configuration', `${fileName(file)} is not a regular file.`);
    // UTF-8 needs at most three bytes for one unit of a JavaScript text.
    const text = info.size > maxCharacters * 3 ? null : await handle.readFile('utf8');
    if (text === null || text.length > maxCharacters)
      throw new ReindeerError('configuration', `${fileName(file)} is longer than ${maxCharacters} characters.`);
    return text;
  } finally {
    await handle.close();
  }
}

/** The part of a path that a reader may see. */
const fileName = (file: string): string => file.split('/').slice(-2).join('/');

function nothing(error: unknown): null {
  if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return null;
  throw error;
}

function checkSoul(soul: string | undefined): void {
  if (soul !== undefined && soul.length > MAX_SOUL)
    throw new ReindeerError(
      'too_large',
      `The soul is longer than ${MAX_SOUL} characters. Shorten it: it is sent with every request.`,
    );
}
