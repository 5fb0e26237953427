import { randomUUID } from 'node:crypto';
import { appendFile, chmod, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Clock, type Logger, type Random, ReindeerError } from '@reindeer/protocol';
import { KeyedLock, replaceFile, type SkillFolders } from '@reindeer/sandbox';
import type { Documents } from '../documents/documents.ts';
import type { PackageFile } from './archive.ts';
import { isProblem, isSkillName, parseSkill } from './format.ts';
import { type AskModel, blocked, decoded, isRead, isScript, judgeSkill, textOf } from './judge.ts';
import type { Skill, SkillLibrary } from './library.ts';
import type { Finding } from './scan.ts';
import type { SkillSecretStore } from './secret-store.ts';
import { entriesOf } from './walk.ts';

export interface SkillPackagesOptions {
  readonly library: SkillLibrary;
  readonly folders: (userId: string) => SkillFolders;
  readonly documents: Documents;
  /** Values that the user stored for a skill go with it: another one under its name is not trusted with them. Absent = there are none. */
  readonly secrets?: Pick<SkillSecretStore, 'forget'>;
  /** Is every package scanned? Default of the configuration: yes. */
  readonly scan: boolean;
  /** The model that judges; null = none is configured that could, and packages are scanned only. */
  readonly ask: AskModel | null;
  /** Is a package refused when the model cannot be asked? Scripts always are. */
  readonly failClosed: boolean;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
}

/** An earlier state of a user's own skill. */
export interface HistoryEntry {
  /** ISO 8601. */
  readonly ts: string;
  readonly action: 'install' | 'edit' | 'delete' | 'rollback' | 'blocked';
  /** SKILL.md before; null = there was none. */
  readonly prev_content: string | null;
  /** SKILL.md after; null = none. */
  readonly new_content: string | null;
  readonly findings: readonly Finding[];
  readonly reason: string | null;
}

const MAX_SCANNED = 8 * 1024 * 1024;
const MAX_HISTORY = 100;
/** Skills of a user's own: each is stored twice, and past the bound of all lists shared ones would be missing. */
const MAX_OWN = 200;
const MAX_HISTORY_BYTES = 8 * 1024 * 1024;

/**
 * Everything that changes a user's own skills (SK-5, SK-12): install, edit, delete, roll back. Each change is validated, scanned, judged by a model
 * where there is one, and only then made, in one step: a crash or a refusal leaves what was there. Changes of one skill come one after another.
 */
export class SkillPackages {
  readonly #options: SkillPackagesOptions;
  readonly #lock = new KeyedLock();

  constructor(options: SkillPackagesOptions) {
    this.#options = options;
  }

  /**
   * Installs a `.skill` archive for a user, switched on.
   *
   * @throws ReindeerError `validation_failed` and `too_large` for an archive that is not fit, `conflict` when the user has such a skill,
   *   `bad_request` with `findings` when it was refused
   */
  async install(userId: string, archive: Uint8Array): Promise<Skill> {
    const { readPackage } = await import('./archive.ts');
    const { files } = await readPackage(archive);
    const head = files.find((file) => file.path === 'SKILL.md');
    const text = head === undefined ? null : textOf(head.bytes);
    if (text === null)
      throw new ReindeerError('validation_failed', 'The archive was refused: its SKILL.md is no text.');
    const { name } = checked(text);
    const { custom } = this.#options.folders(userId);
    const target = join(custom, name);
    return await this.#lock.run(`${userId}/${name}`, async () => {
      if (await exists(target)) throw taken(name);
      if ((await entriesOf(custom)).length >= MAX_OWN)
        throw new ReindeerError('over_capacity', `You have ${MAX_OWN} skills of your own. Delete one first.`);
      const findings = await this.#examine(files);
      const fresh = join(dirname(custom), `.install-${randomUUID()}`);
      try {
        await write(fresh, files);
        await this.#options.secrets?.forget(userId, name);
        await mkdir(custom, { recursive: true, mode: 0o700 });
        // The reservation and the move are one step: of two installs at once, also in two processes, one finds the name taken.
        await rename(fresh, target).catch((error: unknown) => {
          if (['ENOTEMPTY', 'EEXIST'].includes((error as NodeJS.ErrnoException).code ?? '')) throw taken(name);
          throw error;
        });
      } finally {
        await rm(fresh, { recursive: true, force: true });
      }
      await this.#note(userId, name, {
        action: 'install',
        prev_content: null,
        new_content: text,
        findings,
        reason: null,
      });
      return await this.#shown(userId, name);
    });
  }

  /** The text of a user's own skill. @throws ReindeerError `not_found` */
  async read(userId: string, name: string): Promise<{ readonly skill: Skill; readonly content: string }> {
    const skill = await this.#own(userId, name);
    return { skill, content: skill.text };
  }

  /** Replaces SKILL.md. @throws as `install`, and `not_found` */
  edit(userId: string, name: string, content: string): Promise<Skill> {
    return this.#lock.run(`${userId}/${name}`, async () => {
      const skill = await this.#own(userId, name);
      await this.#replace(userId, skill, content, 'edit');
      return await this.#shown(userId, name);
    });
  }

  /** Removes a user's own skill; its history stays. @throws ReindeerError `not_found` */
  delete(userId: string, name: string): Promise<void> {
    return this.#lock.run(`${userId}/${name}`, async () => {
      const skill = await this.#own(userId, name);
      await this.#options.secrets?.forget(userId, name);
      const gone = join(dirname(this.#options.folders(userId).custom), `.deleted-${randomUUID()}`);
      await rename(skill.folder, gone);
      await this.#note(userId, name, {
        action: 'delete',
        prev_content: skill.text,
        new_content: null,
        findings: [],
        reason: null,
      });
      await rm(gone, { recursive: true, force: true });
      this.#options.library.invalidate(userId);
      await this.#options.library.prepare(userId);
    });
  }

  /** Oldest first. Also of a skill that is gone. */
  async history(userId: string, name: string): Promise<readonly HistoryEntry[]> {
    const text = await readFile(this.#historyFile(userId, name), 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '';
      throw error;
    });
    return text
      .split('\n')
      .filter((line) => line !== '')
      .flatMap((line) => {
        try {
          return [JSON.parse(line) as HistoryEntry];
        } catch {
          // A line that a crash cut off.
          return [];
        }
      })
      .slice(-MAX_HISTORY);
  }

  /**
   * Brings back what SKILL.md was before an entry of the history. What comes back is examined again: rules may know more today. A refusal is
   * noted too.
   *
   * @param index the entry's place in the history; a negative one counts from its end the entries that can be gone back to: −1 is the last
   * @throws as `edit`
   */
  rollback(userId: string, name: string, index: number): Promise<Skill> {
    return this.#lock.run(`${userId}/${name}`, async () => {
      const skill = await this.#own(userId, name);
      const entries = await this.history(userId, name);
      const isEarlier = (entry: HistoryEntry) => entry.prev_content !== null && entry.action !== 'blocked';
      const entry = index < 0 ? entries.filter(isEarlier).at(index) : entries[index];
      if (entry?.prev_content == null || !isEarlier(entry))
        throw new ReindeerError('not_found', `The history of "${name}" has no entry ${index} to go back to.`);
      await this.#replace(userId, skill, entry.prev_content, 'rollback');
      return await this.#shown(userId, name);
    });
  }

  async #replace(userId: string, skill: Skill, content: string, action: 'edit' | 'rollback'): Promise<void> {
    const { name } = checked(content);
    if (name !== skill.name)
      throw new ReindeerError(
        'validation_failed',
        `The name in SKILL.md is "${name}", but the skill is called "${skill.name}". A skill keeps its name; install another one instead.`,
      );
    let findings: readonly Finding[];
    try {
      findings = await this.#examine([
        { path: 'SKILL.md', bytes: new TextEncoder().encode(content), executable: false },
      ]);
    } catch (error) {
      if (ReindeerError.is(error) && error.detail?.findings !== undefined)
        await this.#note(userId, name, {
          action: 'blocked',
          prev_content: skill.text,
          new_content: content,
          findings: error.detail.findings as Finding[],
          reason: error.message,
        });
      throw error;
    }
    await this.#note(userId, name, { action, prev_content: skill.text, new_content: content, findings, reason: null });
    await replaceFile(join(skill.folder, 'SKILL.md'), content);
  }

  /** Scans and judges. @throws ReindeerError `bad_request` with the findings of a refused package */
  async #examine(files: readonly PackageFile[]): Promise<readonly Finding[]> {
    const { documents, scan, ask, failClosed, random, logger } = this.#options;
    let findings: readonly Finding[] = [];
    if (scan) {
      let room = MAX_SCANNED;
      const texts = files.flatMap((file) => {
        if (!isRead(file)) return [];
        // By bytes, and before they are decoded: that takes its time on the server's own thread.
        room -= file.bytes.length;
        return room < 0 ? [] : [{ path: file.path, text: decoded(file.bytes) }];
      });
      if (room < 0)
        throw new ReindeerError(
          'too_large',
          `The skill has more than ${MAX_SCANNED / 1024 / 1024} MiB of text, which is more than can be examined.`,
        );
      findings = await documents.read({ kind: 'scan', files: texts });
      const critical = findings.filter((finding) => finding.severity === 'CRITICAL');
      const [worst] = critical;
      if (worst !== undefined) throw blocked(`${worst.file}, line ${worst.line}, ${worst.message}.`, findings);
    }
    if (ask === null) return findings;
    const scripts = files.some(isScript);
    try {
      const { decision, reason } = await judgeSkill(files, findings, ask, random.uuid());
      if (decision === 'block' || (decision === 'warn' && scripts)) throw blocked(reason, findings);
      return findings;
    } catch (error) {
      if (ReindeerError.is(error) && error.detail?.findings !== undefined) throw error;
      if (failClosed || scripts)
        throw new ReindeerError(
          'model_failed',
          'The model that should judge the skill cannot be asked now. Nothing was changed; try again later.',
          { cause: error, retryable: true },
        );
      logger.warn('A skill was let in without the judgement of a model, which could not be asked', {
        error: String(error).slice(0, 200),
      });
      return findings;
    }
  }

  async #own(userId: string, name: string): Promise<Skill> {
    this.#options.library.invalidate(userId);
    const skill = await this.#options.library.get(userId, name);
    if (skill === null || !skill.editable)
      throw new ReindeerError('not_found', `You have no skill "${name}" of your own.`);
    return skill;
  }

  async #shown(userId: string, name: string): Promise<Skill> {
    this.#options.library.invalidate(userId);
    const skills = await this.#options.library.prepare(userId);
    const skill = skills.find((one) => one.name === name);
    if (skill === undefined)
      throw new ReindeerError('internal', `The skill "${name}" is not there after it was written.`);
    return skill;
  }

  #historyFile(userId: string, name: string): string {
    if (!isSkillName(name)) throw new ReindeerError('not_found', 'There is no such skill.');
    return join(this.#options.folders(userId).history, `${name}.jsonl`);
  }

  async #note(userId: string, name: string, entry: Omit<HistoryEntry, 'ts'>): Promise<void> {
    const file = this.#historyFile(userId, name);
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    const line = `${JSON.stringify({ ts: new Date(this.#options.clock.now()).toISOString(), ...entry })}\n`;
    await appendFile(file, line, { mode: 0o600 });
    if ((await stat(file)).size <= MAX_HISTORY_BYTES) return;
    const kept = await this.history(userId, name);
    await replaceFile(
      file,
      kept
        .slice(Math.ceil(kept.length / 2))
        .map((one) => `${JSON.stringify(one)}\n`)
        .join(''),
    );
  }
}

/** At an install and at an edit a head must be right in every key. */
function checked(text: string): { readonly name: string } {
  const parsed = parseSkill(text);
  if (isProblem(parsed))
    throw new ReindeerError(
      'validation_failed',
      `SKILL.md${parsed.line === null ? '' : `, line ${parsed.line}`}: ${parsed.reason}.`,
    );
  const [unknown] = parsed.unknownKeys;
  if (unknown !== undefined)
    throw new ReindeerError(
      'validation_failed',
      `SKILL.md: the key "${unknown.slice(0, 80)}" is not known. Put it below "metadata", or remove it.`,
    );
  return parsed.head;
}

async function write(folder: string, files: readonly PackageFile[]): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o755 });
  for (const file of files) {
    const path = join(folder, file.path);
    await mkdir(dirname(path), { recursive: true, mode: 0o755 });
    await writeFile(path, file.bytes, { flag: 'wx' });
    await chmod(path, file.executable ? 0o755 : 0o644);
  }
}

const exists = async (folder: string): Promise<boolean> =>
  (await readdir(folder).catch((error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? null : []))) !== null;
const taken = (name: string): ReindeerError =>
  new ReindeerError(
    'conflict',
    `You already have a skill "${name}". Delete it first, or give the new one another name.`,
  );
