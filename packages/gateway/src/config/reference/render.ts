import { z } from 'zod';
import { needsRestart, OF_THE_FILE, STARTUP_ONLY } from '../reload.ts';
import { configSchema, KEYS_WITHOUT_EFFECT, SECTIONS_WITHOUT_EFFECT } from '../schema.ts';
import { KEYS, OURS } from './keys.ts';

/** A key of the schema with what may stand there. Lists are `name[]`, free names are `NAME`. */
export interface SchemaKey {
  readonly path: string;
  readonly values: string;
}

/** Every key of the schema, in its order. Keys of `memory` in their older place are left out. */
export function schemaKeys(): SchemaKey[] {
  const keys: SchemaKey[] = [];
  const walk = (schema: unknown, path: string): void => {
    let inner = schema;
    while (inner instanceof z.ZodOptional || inner instanceof z.ZodNullable) inner = inner.unwrap();
    if (inner instanceof z.ZodObject && Object.keys(inner.shape).length > 0)
      for (const [key, value] of Object.entries(inner.shape)) walk(value, path === '' ? key : `${path}.${key}`);
    else if (inner instanceof z.ZodArray && inner.element instanceof z.ZodObject) walk(inner.element, `${path}[]`);
    else if (inner instanceof z.ZodRecord && inner.valueType instanceof z.ZodObject)
      walk(inner.valueType, `${path}.NAME`);
    else keys.push({ path, values: valuesOf(inner) });
  };
  walk(configSchema, '');
  const newer = new Set(keys.map(({ path }) => path));
  return keys.filter(
    ({ path }) =>
      !newer.has(path.replace(/^memory\./, 'memory.backend_config.')) ||
      !path.startsWith('memory.') ||
      path.startsWith('memory.backend_config.'),
  );
}

function valuesOf(schema: unknown): string {
  if (schema instanceof z.ZodNumber) {
    const [low, high] = [schema.minValue, schema.maxValue];
    const bound = (value: number | null) => value !== null && Number.isFinite(value) && Math.abs(value) < 2 ** 53 - 1;
    return bound(low) && bound(high) ? `${low} to ${high}` : 'number';
  }
  if (schema instanceof z.ZodEnum) return schema.options.map((option) => `\`${String(option)}\``).join(', ');
  if (schema instanceof z.ZodBoolean) return '`true`, `false`';
  if (schema instanceof z.ZodString || schema instanceof z.ZodURL) return 'text';
  if (schema instanceof z.ZodArray) {
    const inner: unknown = schema.element;
    return inner instanceof z.ZodEnum ? `list of ${valuesOf(inner)}` : 'list';
  }
  return 'section';
}

/** `section.key` of a path, without what is below. */
const keyOf = (path: string): string => path.split('.').slice(0, 2).join('.').replace(/\[\]$/, '');

/** The text of docs/configuration-reference.md. Throws for a key that `KEYS` does not explain. */
export function configurationReference(): string {
  const sections = new Map<string, string[]>();
  const reasons = new Map<string, Set<string>>();
  for (const { path, values } of schemaKeys()) {
    const note = KEYS[path];
    if (note === undefined) throw new Error(`${path} is not explained: add it to config/reference/keys.ts.`);
    const [ours, theirs, why] = note;
    const other = theirs === undefined ? '' : theirs === OURS ? 'no such key' : theirs;
    const name = path.split(/[.[]/)[0] ?? path;
    const rows = sections.get(name) ?? [];
    const reason = needsRestart(path);
    const from = OF_THE_FILE.includes(path) ? '' : reason === null ? 'next run' : 'restart';
    if (reason !== null && !Object.hasOwn(STARTUP_ONLY, name))
      reasons.set(name, (reasons.get(name) ?? new Set()).add(`\`${keyOf(path)}\`: ${reason}`));
    rows.push(`| \`${path}\` | ${values} | ${ours} | ${from} | ${other} | ${why ?? ''} |`);
    sections.set(name, rows);
  }
  const parts = [...sections].map(([name, rows]) => {
    const single = [...(reasons.get(name) ?? [])];
    const when = Object.hasOwn(STARTUP_ONLY, name)
      ? `startup-only: ${STARTUP_ONLY[name]}`
      : single.length === 0
        ? ''
        : `startup-only:\n${single.map((line) => `- ${line}\n`).join('')}`.trimEnd();
    const head =
      '| key | values | default | counts from | in DeerFlow, where it differs | why, or what to know |\n|---|---|---|---|---|---|';
    return `## ${name}\n\n${when === '' ? '' : `${when}\n\n`}${head}\n${rows.join('\n')}\n`;
  });
  const inside = Object.entries(KEYS_WITHOUT_EFFECT).flatMap(([name, keys]) => keys.map((key) => `\`${name}.${key}\``));
  return `# Configuration reference

Every key of \`config.yaml\`. Made by \`npm run reference\` from the schema; how the file is found and read is told in [configuration](configuration.md).
\`[]\` stands for each entry of a list, \`NAME\` for a name of your own. Where the fifth column is empty, DeerFlow does the same.
A change counts from the *next run* on, without a restart (runs at work end as they began), or from the next *restart*; \`GET /api/config\` tells which changes wait for one.

${parts.join('\n')}
## Read over

DeerFlow's files may have these, and they have no effect here: ${SECTIONS_WITHOUT_EFFECT.map((name) => `\`${name}\``).join(', ')}; ${inside.join(', ')}.

All keys of \`memory.backend_config\` may also stand in \`memory\` itself, as in older files.
`;
}
