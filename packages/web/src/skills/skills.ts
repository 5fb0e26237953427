import type { Api } from '../api/api.ts';
import { isDictionary, listOf, textOr } from '../chat/wire.ts';

export interface Skill {
  readonly name: string;
  readonly description: string;
  /** `public` came along, `custom` is the user's own. */
  readonly category: string;
  readonly enabled: boolean;
  readonly editable: boolean;
  readonly version: string | null;
  readonly author: string | null;
  readonly license: string | null;
  readonly allowedTools: readonly string[] | null;
  /** Secrets that it needs to be given. */
  readonly secrets: readonly { readonly name: string; readonly optional: boolean }[];
}

export interface SkillChange {
  /** Its place in the history, as the server counts. */
  readonly index: number;
  readonly action: string;
  readonly at: number | null;
  /** Is there an earlier SKILL.md to go back to? */
  readonly hasBefore: boolean;
}

export function readSkills(value: unknown): readonly Skill[] {
  return listOf(isDictionary(value) ? value.skills : null)
    .filter(isDictionary)
    .map((skill) => ({
      name: textOr(skill.name, ''),
      description: textOr(skill.description, ''),
      category: textOr(skill.category, ''),
      enabled: skill.enabled === true,
      editable: skill.editable === true,
      version: textOr(skill.version, null),
      author: textOr(skill.author, null),
      license: textOr(skill.license, null),
      allowedTools: Array.isArray(skill.allowed_tools)
        ? skill.allowed_tools.filter((name) => typeof name === 'string')
        : null,
      secrets: listOf(skill.required_secrets)
        .filter(isDictionary)
        .map((secret) => ({ name: textOr(secret.name, ''), optional: secret.optional === true })),
    }))
    .filter((skill) => skill.name !== '');
}

/** The user's own first, then by name. */
export function sorted(skills: readonly Skill[]): readonly Skill[] {
  return skills.toSorted(
    (left, right) => Number(right.editable) - Number(left.editable) || left.name.localeCompare(right.name),
  );
}

export function readHistory(value: unknown): readonly SkillChange[] {
  return listOf(isDictionary(value) ? value.history : null).map((entry, index) => {
    const change = isDictionary(entry) ? entry : {};
    const at = Date.parse(textOr(change.ts, ''));
    return {
      index,
      action: textOr(change.action, ''),
      at: Number.isNaN(at) ? null : at,
      hasBefore: typeof change.prev_content === 'string' && change.action !== 'blocked',
    };
  });
}

/**
 * Installs an archive from this computer. The server takes archives that lie in a chat: it lies in one that is there for this alone.
 *
 * @returns the skill's name
 */
export async function installFrom(api: Api, threadId: string, archive: File): Promise<string> {
  await api.createThread(threadId);
  try {
    const { files } = await api.upload(threadId, [archive], new AbortController().signal);
    return await install(api, threadId, files[0]?.path ?? '');
  } finally {
    await api.deleteThread(threadId).catch(() => {});
  }
}

/** Installs an archive that lies in a chat. */
export async function install(api: Pick<Api, 'rest'>, threadId: string, path: string): Promise<string> {
  const answer = await api.rest.send('POST', '/skills/install', { thread_id: threadId, path });
  return textOr(isDictionary(answer) ? answer.skill_name : null, '');
}
