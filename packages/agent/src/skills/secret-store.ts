import { type Clock, ReindeerError } from '@reindeer/protocol';
import { KeyedLock, replaceFile } from '@reindeer/sandbox';
import { FreshCache } from './fresh-cache.ts';
import { readJsonFile } from './json-file.ts';
import type { Skill } from './library.ts';

/** Values by skill, then by the name of the variable. */
export type SecretValues = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Values that the operator gave, for all users. */
export interface SharedSecrets {
  read(): Promise<SecretValues>;
  /** @param values null removes one */
  set(skill: string, values: Readonly<Record<string, string | null>>): Promise<void>;
}

export interface SecretStoreOptions {
  /** File of a user's own values. */
  readonly file: (userId: string) => string;
  readonly shared: SharedSecrets;
  readonly clock: Clock;
  /** How long what was read holds, in milliseconds. Default 2,000. */
  readonly freshMs?: number;
}

/** Whose value of a secret counts. */
export type SecretScope = 'user' | 'shared';

/** What anybody may know of a secret: never its value. */
export interface SecretView {
  readonly name: string;
  readonly optional: boolean;
  /** Where its value comes from; null = there is none. */
  readonly source: SecretScope | null;
}

/** What a value is shown as; writing it back keeps the stored one. */
export const SECRET_MASK = '***';
/** Longest value, and longest file of a user's values, in bytes. */
export const MAX_SECRET = 16 * 1024;
const MAX_FILE = 1024 * 1024;
const MAX_USERS = 1_000;
/** Values that are kept in mind of one user. */
const MAX_REMEMBERED = 500;
const NONE: Readonly<Record<string, string>> = {};

/**
 * Values for the secrets that skills declare (SK-8), each for one skill: what one skill is trusted with, another that declares the same name does not get.
 * A user's own value goes before the operator's; the operator's is never given to a skill that the user wrote or installed, since whoever writes the
 * skill could read it. Values leave this object only towards the environment of a command and towards what hides them.
 */
export class SkillSecretStore {
  readonly #options: Required<SecretStoreOptions>;
  readonly #lock = new KeyedLock();
  /** By the user's file; the one that was used the longest ago comes first. */
  readonly #had = new Map<string, Set<string>>();
  /** Secrets do not stay in memory longer than they hold. */
  readonly #looks: FreshCache<SecretValues>;

  constructor(options: SecretStoreOptions) {
    this.#options = { freshMs: 2_000, ...options };
    this.#looks = new FreshCache({ ...this.#options, most: MAX_USERS });
  }

  /** What the skill declares and where each value comes from. @throws ReindeerError `configuration` when the values cannot be read */
  async describe(userId: string, skill: Skill): Promise<readonly SecretView[]> {
    const [own, shared] = await Promise.all([this.#own(userId), this.#shared()]);
    return skill.requiredSecrets.map(({ name, optional }) => ({
      name,
      optional,
      source:
        storedValue(own, skill.name, name) !== undefined
          ? 'user'
          : !skill.editable && storedValue(shared, skill.name, name) !== undefined
            ? 'shared'
            : null,
    }));
  }

  /**
   * Stores values for what a skill declares: a text replaces, the mask keeps, null and empty text remove.
   *
   * @throws ReindeerError `validation_failed` that names the secret, never its value; `configuration`, `too_large`
   */
  async set(
    userId: string,
    skill: Skill,
    written: Readonly<Record<string, string | null>>,
    scope: SecretScope,
  ): Promise<void> {
    const declared = skill.requiredSecrets.map(({ name }) => name);
    for (const [name, value] of Object.entries(written)) {
      if (!declared.includes(name))
        throw refused(
          name,
          `the skill "${skill.name}" declares no such secret${declared.length === 0 ? '' : `; it declares ${declared.join(', ')}`}`,
        );
      if (value !== null && (value.includes('\0') || Buffer.byteLength(value) > MAX_SECRET))
        throw refused(name, `the value holds a NUL or has more than ${MAX_SECRET} bytes`);
    }
    if (scope === 'shared' && skill.editable)
      throw refused(
        Object.keys(written)[0] ?? skill.name,
        `"${skill.name}" is the user's own skill; a value for all users would be readable for whoever edits it. Store it for the user`,
      );
    const before = (scope === 'shared' ? await this.#options.shared.read() : await this.#own(userId, true))[skill.name];
    for (const [name, value] of Object.entries(written))
      if (value === SECRET_MASK && before?.[name] === undefined)
        throw refused(name, `nothing is stored that "${SECRET_MASK}" could keep`);
    const changes = Object.fromEntries(
      Object.entries(written)
        .filter(([, value]) => value !== SECRET_MASK)
        .map(([name, value]) => [name, value === '' ? null : value]),
    );
    if (scope === 'shared') {
      await this.#options.shared.set(skill.name, changes);
      this.#looks.delete(SHARED);
    } else await this.#change(userId, skill.name, (values) => merged(values, changes));
  }

  /** Forgets a user's values for a skill: one that is installed anew under the name is another. */
  async forget(userId: string, skill: string): Promise<void> {
    if ((await this.#own(userId, true))[skill] === undefined) return;
    await this.#change(userId, skill, () => NONE);
  }

  /**
   * The values of what the skills declare, the first skill first.
   *
   * @param given values that came with the run; they go before stored ones
   */
  async environment(
    userId: string,
    skills: readonly Skill[],
    given: Readonly<Record<string, string>>,
  ): Promise<Readonly<Record<string, string>>> {
    if (skills.every((skill) => skill.requiredSecrets.length === 0)) return NONE;
    const [own, shared] = await Promise.all([this.#own(userId), this.#shared()]);
    const bound: Record<string, string> = {};
    for (const skill of skills)
      for (const { name } of skill.requiredSecrets) {
        if (Object.hasOwn(bound, name)) continue;
        const value =
          (Object.hasOwn(given, name) ? given[name] : undefined) ??
          storedValue(own, skill.name, name) ??
          (skill.editable ? undefined : storedValue(shared, skill.name, name));
        if (value !== undefined && value !== '') bound[name] = value;
      }
    return bound;
  }

  /**
   * Keeps values in mind that a command had, or will have: they stay hidden while this process lives, whatever becomes of what is stored. Those that came
   * with a run are nowhere else.
   */
  remember(userId: string, values: readonly string[]): void {
    if (values.length === 0) return;
    const file = this.#options.file(userId);
    const known = this.#had.get(file) ?? new Set<string>();
    this.#had.delete(file);
    this.#had.set(file, known);
    for (const value of values) {
      known.delete(value);
      known.add(value);
    }
    for (const oldest of known) {
      if (known.size <= MAX_REMEMBERED) break;
      known.delete(oldest);
    }
    const [longest] = this.#had.keys();
    if (this.#had.size > MAX_USERS && longest !== undefined) this.#had.delete(longest);
  }

  /** Every value that a command of the user's could show, as far as it is known. @throws when the stored ones cannot be read */
  async values(userId: string): Promise<readonly string[]> {
    const [own, shared] = await Promise.all([this.#own(userId), this.#shared()]);
    const stored = [own, shared].flatMap((values) =>
      Object.values(values).flatMap((ofSkill) => Object.values(ofSkill)),
    );
    return [...new Set([...stored, ...(this.#had.get(this.#options.file(userId)) ?? [])])];
  }

  #change(
    userId: string,
    skill: string,
    change: (values: Readonly<Record<string, string>>) => Readonly<Record<string, string>>,
  ): Promise<void> {
    const file = this.#options.file(userId);
    return this.#lock.run(file, async () => {
      const { [skill]: before = NONE, ...others } = await readValues(file);
      const after = change(before);
      const text = `${JSON.stringify({ ...others, ...(Object.keys(after).length === 0 ? {} : { [skill]: after }) }, null, 2)}\n`;
      if (Buffer.byteLength(text) > MAX_FILE)
        throw new ReindeerError(
          'too_large',
          `Your secrets would have more than ${MAX_FILE / 1024} KiB. Remove some first.`,
        );
      // Somebody may have loosened it.
      await replaceFile(file, text, 0o600);
      this.#looks.delete(file);
    });
  }

  #own(userId: string, anew = false): Promise<SecretValues> {
    const file = this.#options.file(userId);
    return this.#looks.get(file, () => readValues(file), anew);
  }

  #shared(): Promise<SecretValues> {
    return this.#looks.get(SHARED, () => this.#options.shared.read());
  }
}

/** Key of the operator's values; no file has it as its path. */
const SHARED = '';

const storedValue = (values: SecretValues, skill: string, name: string): string | undefined => {
  const ofSkill = Object.hasOwn(values, skill) ? values[skill] : undefined;
  return ofSkill !== undefined && Object.hasOwn(ofSkill, name) && ofSkill[name] !== '' ? ofSkill[name] : undefined;
};

export function merged(
  before: Readonly<Record<string, string>>,
  changes: Readonly<Record<string, string | null>>,
): Record<string, string> {
  const after = new Map(Object.entries(before));
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) after.delete(name);
    else after.set(name, value);
  }
  return Object.fromEntries(after);
}

/** Only texts below skills; whatever else stands there is no value. */
export function secretValues(value: unknown): SecretValues {
  if (!isRecord(value)) return {};
  return Object.fromEntries(
    Object.entries(value).flatMap(([skill, values]) =>
      isRecord(values)
        ? [
            [
              skill,
              Object.fromEntries(
                Object.entries(values).filter((entry): entry is [string, string] => typeof entry[1] === 'string'),
              ),
            ],
          ]
        : [],
    ),
  );
}

async function readValues(file: string): Promise<SecretValues> {
  return secretValues(
    await readJsonFile(
      file,
      'Your secrets for skills cannot be read: the file _skill_secrets.json is damaged. Repair it or remove it.',
    ),
  );
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const refused = (name: string, reason: string): ReindeerError =>
  new ReindeerError('validation_failed', `${name.slice(0, 128)}: ${reason}.`, {
    detail: { field: name.slice(0, 128) },
  });
