import { DEFAULT_MEMORY_AGENT, ReindeerError } from '@reindeer/protocol';
import { isMap, parseDocument } from 'yaml';
import { z } from 'zod';

/** Longest `SOUL.md`, in characters: it is a part of every request. */
export const MAX_SOUL = 32_768;
/** Longest `config.yaml` of an agent, in characters. */
export const MAX_PROFILE = 65_536;
const MAX_AGENT_NAME = 64;
const NAME = /^[A-Za-z0-9-]+$/;

/** Names that mean the default agent or its memory. */
const RESERVED: readonly string[] = [DEFAULT_MEMORY_AGENT, 'default', 'lead-agent'];

const list = (what: string) =>
  z
    .array(z.string().min(1).max(200), { error: `must be a list of ${what}` })
    .max(200)
    .nullish();

/** What a profile may say; the names are those of its `config.yaml` and of the HTTP surface (CA-1). null = as the default agent. */
export const profileFields = z.object({
  description: z.string({ error: 'must be text' }).max(2_000).nullish(),
  /** Name of a configured model. */
  model: z.string({ error: 'must be the name of a model' }).min(1).max(200).nullish(),
  tool_groups: list('tool groups'),
  /** null = all that are switched on; an empty list = none (SK-4b). */
  skills: list('skills'),
  model_settings: z
    .strictObject(
      {
        temperature: z.number().min(0).max(2).nullish(),
        /** Tokens of one answer. */
        max_tokens: z.number().int().min(1).max(200_000).nullish(),
      },
      { error: 'must be {temperature, max_tokens}' },
    )
    .nullish(),
  thinking_enabled: z.boolean({ error: 'must be true or false' }).nullish(),
  reasoning_effort: z.enum(['low', 'medium', 'high'], { error: 'must be low, medium or high' }).nullish(),
});

type Given = z.output<typeof profileFields>;
export type ProfileKey = keyof Given;
const PROFILE_KEYS = Object.keys(profileFields.shape) as readonly ProfileKey[];

/** A custom agent of a user. */
export interface AgentProfile {
  readonly name: string;
  readonly description: string;
  readonly model: string | null;
  readonly tool_groups: readonly string[] | null;
  readonly skills: readonly string[] | null;
  readonly model_settings: { readonly temperature: number | null; readonly max_tokens: number | null } | null;
  readonly thinking_enabled: boolean | null;
  readonly reasoning_effort: 'low' | 'medium' | 'high' | null;
  /** `SOUL.md`; '' = none. */
  readonly soul: string;
}

/** A change: what is left out stays, null takes a setting away. */
export type ProfileChange = { readonly [K in ProfileKey]?: Given[K] | undefined } & {
  readonly soul?: string | undefined;
};

export const isAgentName = (name: string): boolean => name.length <= MAX_AGENT_NAME && NAME.test(name);

/**
 * The name under which an agent is kept: lower case. To be asked before any file is touched.
 *
 * @throws ReindeerError `validation_failed`
 */
export function agentNameOf(given: unknown): string {
  if (typeof given === 'string' && isAgentName(given)) return given.toLowerCase();
  throw new ReindeerError(
    'validation_failed',
    `"${String(given).slice(0, 80)}" is no name of an agent. Use 1 to ${MAX_AGENT_NAME} letters, digits and "-".`,
    { detail: { field: 'agent_name' } },
  );
}

/** As `agentNameOf`, for an agent that is to be made. */
export function newAgentName(given: unknown): string {
  const name = agentNameOf(given);
  if (!RESERVED.includes(name)) return name;
  throw new ReindeerError('validation_failed', `"${name}" is the default agent's. Choose another name.`, {
    detail: { field: 'name' },
  });
}

/**
 * Reads a `config.yaml`. The name is the folder's, whatever the file says; keys that are not ours are left alone.
 *
 * @throws ReindeerError `configuration` that names the file, and the line or the key
 */
export function parseProfile(name: string, text: string, soul: string): AgentProfile {
  const where = `agents/${name}/config.yaml`;
  const document = documentOf(where, text);
  const parsed = profileFields.safeParse(document.toJS() ?? {});
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new ReindeerError('configuration', `${where}: ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`);
  }
  const { data } = parsed;
  return {
    name,
    description: data.description ?? '',
    model: data.model ?? null,
    tool_groups: data.tool_groups ?? null,
    skills: data.skills ?? null,
    model_settings:
      data.model_settings == null
        ? null
        : {
            temperature: data.model_settings.temperature ?? null,
            max_tokens: data.model_settings.max_tokens ?? null,
          },
    thinking_enabled: data.thinking_enabled ?? null,
    reasoning_effort: data.reasoning_effort ?? null,
    soul: soul.trim() === '' ? '' : soul,
  };
}

/**
 * The text of a `config.yaml` after a change. Comments and keys that are not ours stay as they are.
 *
 * @param text null = there is none yet
 */
export function changedProfile(name: string, text: string | null, change: ProfileChange): string {
  const where = `agents/${name}/config.yaml`;
  const document = documentOf(where, text ?? '{}');
  if (!isMap(document.contents)) document.contents = document.createNode({}) as never;
  if (isMap(document.contents)) document.contents.flow = false;
  document.set('name', name);
  for (const key of PROFILE_KEYS) {
    const value = change[key];
    if (value === undefined) continue;
    if (value === null) document.delete(key);
    else document.set(key, document.createNode(value));
  }
  const changed = document.toString();
  if (changed.length > MAX_PROFILE)
    throw new ReindeerError('too_large', `The profile would be longer than ${MAX_PROFILE} characters.`);
  return changed;
}

function documentOf(where: string, text: string): ReturnType<typeof parseDocument> {
  const document = parseDocument(text);
  const [error] = document.errors;
  if (error !== undefined)
    throw new ReindeerError(
      'configuration',
      `${where}, line ${error.linePos?.[0].line ?? 1}: ${error.message.split('\n')[0]}`,
    );
  return document;
}
