import { type Document, isMap, LineCounter, parseDocument } from 'yaml';

/** A secret that a skill wants in its commands' environment (SK-8). */
export interface RequiredSecret {
  readonly name: string;
  readonly optional: boolean;
}

/** What the head of a `SKILL.md` says (SK-1). */
export interface SkillHead {
  readonly name: string;
  readonly description: string;
  readonly license: string | null;
  readonly version: string | null;
  readonly author: string | null;
  readonly compatibility: string | null;
  /** null = nothing said, which restricts nothing; an empty list allows no tool beyond the harness's own. */
  readonly allowedTools: readonly string[] | null;
  readonly requiredSecrets: readonly RequiredSecret[];
  /** May the secrets be bound because the model read the skill, and not only when a person called it? */
  readonly secretsAutonomous: boolean;
  readonly metadata: Readonly<Record<string, unknown>>;
}

export interface ParsedSkill {
  readonly head: SkillHead;
  /** The instructions, without the head. */
  readonly body: string;
  /** Keys that the format does not know; refused at an install, tolerated at loading. */
  readonly unknownKeys: readonly string[];
}

export interface SkillProblem {
  /** What is wrong, and what would be right. */
  readonly reason: string;
  /** From 1; null where no line can be named. */
  readonly line: number | null;
}

export const MAX_NAME = 64;
export const MAX_DESCRIPTION = 1024;
/** Longest `SKILL.md`, in characters. */
export const MAX_SKILL_FILE = 512 * 1024;
/** Longest head, in characters: names of its keys are compared with one another. */
const MAX_HEAD = 16 * 1024;
const MAX_TOOLS = 200;
const MAX_SECRETS = 50;
const NAME = /^[a-z0-9]+(?:-[a-z0-9]+)*$/;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
const KEYS = new Set([
  'name',
  'description',
  'license',
  'allowed-tools',
  'required-secrets',
  'secrets-autonomous',
  'metadata',
  'compatibility',
  'version',
  'author',
]);

export const isSkillName = (name: string): boolean => name.length <= MAX_NAME && NAME.test(name);

/**
 * Reads a `SKILL.md`: a YAML head between two lines of `---`, then Markdown. Never throws; says what is wrong and where.
 */
export function parseSkill(text: string): ParsedSkill | SkillProblem {
  if (text.length > MAX_SKILL_FILE) return problem(`SKILL.md has more than ${MAX_SKILL_FILE} characters`);
  const source = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
  const head = /^---[ \t]*\n([\s\S]*?)\n---[ \t]*(?:\n|$)/.exec(source);
  if (head === null)
    return problem(
      'SKILL.md must begin with a line "---", keys such as name and description, and another line "---"',
      1,
    );
  if ((head[1] ?? '').length > MAX_HEAD)
    return problem(`the head has more than ${MAX_HEAD} characters; put long texts below it`, 1);
  const lines = new LineCounter();
  const document = parseDocument(head[1] ?? '', {
    lineCounter: lines,
    prettyErrors: false,
    strict: true,
    uniqueKeys: true,
  });
  const [error] = document.errors;
  if (error !== undefined) {
    const line = lines.linePos(error.pos[0]).line;
    return problem(`the head is no YAML: ${hintOf(head[1] ?? '', line) ?? error.message.split('\n')[0]}`, line + 1);
  }
  if (!isMap(document.contents)) return problem('the head must consist of keys and values', 1);
  // Aliases could make a small head a large one.
  let value: Record<string, unknown>;
  try {
    value = document.toJS({ maxAliasCount: 20 }) as Record<string, unknown>;
  } catch {
    return problem('the head uses too many YAML aliases', 1);
  }
  const read = headOf(value);
  if ('reason' in read) return problem(read.reason, read.key === null ? null : lineOf(document, lines, read.key));
  return {
    head: read,
    body: source.slice(head[0].length).trim(),
    unknownKeys: Object.keys(value).filter((key) => !KEYS.has(key)),
  };
}

/** A colon in an unquoted value is the usual mistake; the corrected line says more than any explanation. */
function hintOf(yaml: string, line: number): string | null {
  const found = /^([\w-]+): (.*: .*)$/.exec(yaml.split('\n')[line - 1] ?? '');
  if (found === null || /^["'|>[{]/.test(found[2] ?? '')) return null;
  return `a value with a colon needs quotes. Write: ${found[1]}: ${JSON.stringify(found[2])}`;
}

function lineOf(document: Document, lines: LineCounter, key: string): number | null {
  const items = isMap(document.contents) ? document.contents.items : [];
  const range = (
    items.find((item) => String(item.key) === key)?.key as { range?: [number, number, number] } | undefined
  )?.range;
  return range === undefined ? null : lines.linePos(range[0]).line + 1;
}

type HeadProblem = { readonly reason: string; readonly key: string | null };

function headOf(value: Record<string, unknown>): SkillHead | HeadProblem {
  const wrong = (key: string, reason: string): HeadProblem => ({
    reason: `${key} ${reason}`,
    key: key in value ? key : null,
  });
  const { name, description } = value;
  if (typeof name !== 'string' || !isSkillName(name))
    return wrong(
      'name',
      `must be lower-case words joined by single hyphens, such as "data-analysis", at most ${MAX_NAME} characters`,
    );
  if (typeof description !== 'string' || description.trim() === '')
    return wrong('description', 'must say when to use the skill');
  if (description.length > MAX_DESCRIPTION) return wrong('description', `has more than ${MAX_DESCRIPTION} characters`);
  if (/[<>]/.test(description)) return wrong('description', 'must not contain < or >');
  const allowedTools = toolsOf(value['allowed-tools']);
  if (allowedTools === 'wrong') return wrong('allowed-tools', 'must be a list of tool names');
  const requiredSecrets = secretsOf(value['required-secrets']);
  if (requiredSecrets === null)
    return wrong('required-secrets', 'must be a list of names of environment variables, or of {name, optional}');
  const metadata = value.metadata ?? {};
  if (typeof metadata !== 'object' || metadata === null || Array.isArray(metadata))
    return wrong('metadata', 'must consist of keys and values');
  for (const key of ['license', 'compatibility', 'author'] as const)
    if (value[key] != null && typeof value[key] !== 'string') return wrong(key, 'must be text');
  return {
    name,
    description: description.trim(),
    license: textOf(value.license),
    version: value.version == null ? null : String(value.version),
    author: textOf(value.author),
    compatibility: textOf(value.compatibility),
    allowedTools,
    requiredSecrets,
    // What cannot be understood must not open anything.
    secretsAutonomous: value['secrets-autonomous'] === undefined || value['secrets-autonomous'] === true,
    metadata: metadata as Record<string, unknown>,
  };
}

const textOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

/** A list, or as some write it one text with spaces or commas. */
function toolsOf(value: unknown): readonly string[] | null | 'wrong' {
  if (value === undefined || value === null) return null;
  const list = typeof value === 'string' ? value.split(/[\s,]+/).filter((word) => word !== '') : value;
  if (!Array.isArray(list) || list.length > MAX_TOOLS || !list.every((tool) => typeof tool === 'string'))
    return 'wrong';
  return [...new Set(list as string[])];
}

function secretsOf(value: unknown): readonly RequiredSecret[] | null {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || value.length > MAX_SECRETS) return null;
  const secrets: RequiredSecret[] = [];
  for (const item of value) {
    const { name, optional } =
      typeof item === 'string'
        ? { name: item, optional: false }
        : ((item ?? {}) as { name?: unknown; optional?: unknown });
    if (typeof name !== 'string' || !VARIABLE.test(name)) return null;
    secrets.push({ name, optional: optional === true });
  }
  return secrets;
}

const problem = (reason: string, line: number | null = null): SkillProblem => ({ reason, line });
export const isProblem = (value: ParsedSkill | SkillProblem): value is SkillProblem => 'reason' in value;
