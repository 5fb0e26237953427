import { type Json, type Logger, ReindeerError } from '@reindeer/protocol';
import type { State } from '../loop/middleware.ts';
import { type ActiveAgent, skillsFor } from '../profiles/active.ts';
import { hiddenForms } from '../tools/text.ts';
import { skillCommand } from './activation.ts';
import type { Skill } from './library.ts';
import { readSkillPaths } from './policy.ts';
import type { SkillSecretStore } from './secret-store.ts';

export interface SkillAccessParts {
  /** Looked at for each call, so that a skill that is switched off in the middle of a run is off at once. */
  readonly library: { list(userId: string): Promise<readonly Skill[]> };
  readonly secrets: Pick<SkillSecretStore, 'environment' | 'values' | 'remember'>;
  readonly userId: string;
  readonly agent: ActiveAgent | null;
  /** Came with the run (SK-8). */
  readonly given: Readonly<Record<string, string>>;
  readonly logger: Logger;
}

/** What a call binds: variables for its command, and whose they are. */
interface Binding {
  readonly environment: Readonly<Record<string, string>>;
  readonly skills: readonly string[];
}

const NOTHING: Binding = { environment: {}, skills: [] };

/**
 * What one attempt may do with skills right now: which are on, and which secrets its commands get (SK-8). All agents of a run share it, so that what
 * was bound for one is hidden from all.
 */
export class SkillAccess {
  readonly #parts: SkillAccessParts;
  #forms: { readonly of: string; readonly hidden: readonly string[] } = { of: '', hidden: [] };
  #known: readonly string[] = [];
  #told = '';

  constructor(parts: SkillAccessParts) {
    this.#parts = parts;
    parts.secrets.remember(parts.userId, Object.values(parts.given));
  }

  /** Verdicts for one tool call (SL-22). */
  verdicts(): SkillVerdicts {
    return new SkillVerdicts(this.#parts);
  }

  /**
   * The variables for a command of now: what the active skills declare and somebody has stored or given. Whether a skill is on is asked anew; when that
   * cannot be told, nothing is bound.
   *
   * @param commands may a message of this conversation have called a skill? A sub-agent's were written by a model
   * @param emit tells of a change, by names only
   */
  async bind(state: State, commands: boolean, emit: (event: Json) => void): Promise<Readonly<Record<string, string>>> {
    const binding = await this.#bindingOf(state, commands);
    this.#parts.secrets.remember(this.#parts.userId, Object.values(binding.environment));
    const names = Object.keys(binding.environment).sort();
    const told = JSON.stringify([names, binding.skills]);
    if (told !== this.#told && !(this.#told === '' && names.length === 0)) {
      this.#told = told;
      emit({ type: 'skill:secrets', names, skills: [...binding.skills] });
      this.#parts.logger.info('The secrets of skills that commands get have changed', {
        bound: names,
        skills: binding.skills,
      });
    }
    return binding.environment;
  }

  /** Every text that no result may show. */
  async hidden(): Promise<readonly string[]> {
    try {
      this.#known = await this.#parts.secrets.values(this.#parts.userId);
    } catch (error) {
      // What was known before stays hidden.
      this.#parts.logger.error('The secrets of skills cannot be read', { error: messageOf(error) });
    }
    const values = this.#known;
    if (values.length === 0) return values;
    const key = JSON.stringify(values);
    if (this.#forms.of !== key) this.#forms = { of: key, hidden: hiddenForms(values) };
    return this.#forms.hidden;
  }

  async #allowed(): Promise<readonly Skill[]> {
    const { library, userId, agent } = this.#parts;
    return skillsFor(agent, await library.list(userId)).filter((skill) => skill.enabled);
  }

  async #bindingOf(state: State, commands: boolean): Promise<Binding> {
    const read = readSkillPaths(state);
    const command = commands ? skillCommand(state) : null;
    if (read.length === 0 && command === null) return NOTHING;
    let allowed: readonly Skill[];
    try {
      allowed = await this.#allowed();
    } catch (error) {
      this.#parts.logger.error('The skills cannot be read; commands get none of their secrets', {
        error: messageOf(error),
      });
      return NOTHING;
    }
    const called = command === null ? undefined : allowed.find((skill) => skill.name === command.name);
    const skills = [
      ...(called === undefined ? [] : [called]),
      ...allowed.filter(
        (skill) => skill !== called && skill.secretsAutonomous && read.includes(`${skill.location}/SKILL.md`),
      ),
    ].filter((skill) => skill.requiredSecrets.length > 0);
    if (skills.length === 0) return NOTHING;
    const { secrets, userId, given } = this.#parts;
    const environment = await secrets.environment(userId, skills, given);
    return { environment, skills: skills.map((skill) => skill.name) };
  }
}

/** Why a call may not touch a skill; null = it may. */
export type SkillVerdict = string | null;

/** The verdicts of one call: the skills are read once, each is judged once, and what cannot be told is a no (SL-22). */
class SkillVerdicts {
  readonly #parts: Pick<SkillAccessParts, 'library' | 'userId' | 'agent'>;
  readonly #judged = new Map<string, SkillVerdict>();
  #skills: Promise<readonly Skill[]> | null = null;

  constructor(parts: Pick<SkillAccessParts, 'library' | 'userId' | 'agent'>) {
    this.#parts = parts;
  }

  /** @param path virtual, below the folder of skills */
  async of(path: string): Promise<SkillVerdict> {
    try {
      this.#skills ??= this.#parts.library.list(this.#parts.userId);
      const skill = (await this.#skills).find(({ location }) => path === location || path.startsWith(`${location}/`));
      // Folders above skills, and what is no skill: nothing that is off lies there.
      if (skill === undefined) return null;
      const known = this.#judged.get(skill.location);
      if (known !== undefined) return known;
      const verdict = this.#judge(skill);
      this.#judged.set(skill.location, verdict);
      return verdict;
    } catch {
      return 'whether this skill is switched on cannot be told now. Go on without skills, or try again later';
    }
  }

  #judge(skill: Skill): SkillVerdict {
    if (!skill.enabled)
      return `the skill "${skill.name}" is switched off. Do not use it, and do not look for a way around`;
    if (skillsFor(this.#parts.agent, [skill]).length === 0)
      return `the skill "${skill.name}" is none of this agent's. Use the skills that it has`;
    return null;
  }
}

const messageOf = (error: unknown): string =>
  ReindeerError.is(error) ? error.message : String((error as NodeJS.ErrnoException).code ?? 'unknown');
