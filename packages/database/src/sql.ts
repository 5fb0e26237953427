import { type RawBuilder, sql } from 'kysely';
import type { Dialect } from './executor.ts';

/** The few expressions that databases spell differently. */

/** The rows of a JSON array of texts that travels as one parameter: `.where('run_id', 'in', texts(dialect, p.ids))`. */
export function texts(dialect: Dialect, json: string): RawBuilder<string> {
  return dialect.name === 'sqlite'
    ? sql<string>`(select value from json_each(${json}))`
    : sql<string>`(select jsonb_array_elements_text(${json}::jsonb))`;
}

/**
 * Is the column one of the values of a JSON array, or of one field of its objects, that travels as one parameter? For look-ups by a unique index: on
 * Postgres the values are an array, which leaves the planner no table to join. With a sub-query it reads all rows of whatever it takes for small, and it takes
 * for small what has grown since its statistics.
 */
export function isOneOf(
  dialect: Dialect,
  column: string,
  json: string,
  type: 'text' | 'bigint',
  field?: string,
): RawBuilder<boolean> {
  const name = sql.ref(column);
  const path = field === undefined ? null : sql.lit(field);
  if (dialect.name === 'sqlite')
    return path === null
      ? sql<boolean>`${name} in (select value from json_each(${json}))`
      : sql<boolean>`${name} in (select value ->> ${path} from json_each(${json}))`;
  const cast = sql.raw(type);
  return path === null
    ? sql<boolean>`${name} = any(array(select cast(value as ${cast}) from json_array_elements_text(${json}::json) as t(value)))`
    : sql<boolean>`${name} = any(array(select cast(value ->> ${path} as ${cast}) from json_array_elements(${json}::json) as t(value)))`;
}

/** A parameter in a place that does not tell its type, as in `x is null`. */
export function typed<T>(dialect: Dialect, value: T, type: 'text' | 'bigint' | 'bytea'): RawBuilder<T> {
  return dialect.name === 'sqlite' ? sql<T>`${value}` : sql<T>`cast(${value} as ${sql.raw(type)})`;
}

/** The larger of two numbers. */
export function greatest(dialect: Dialect, a: RawBuilder<number>, b: RawBuilder<number>): RawBuilder<number> {
  return dialect.name === 'sqlite' ? sql<number>`max(${a}, ${b})` : sql<number>`greatest(${a}, ${b})`;
}

/** Postgres takes neither NUL nor halves of pairs out of JSON. */
export const storable = <T extends string | null>(text: T): T =>
  (text === null ? null : text.replaceAll('\0', '\uFFFD').toWellFormed()) as T;
