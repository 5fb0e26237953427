import { type RawBuilder, sql } from 'kysely';
import type { Dialect } from './executor.ts';

/** The few expressions that databases spell differently. */

/** The rows of a JSON array of texts that travels as one parameter: `.where('run_id', 'in', texts(dialect, p.ids))`. */
export function texts(dialect: Dialect, json: string): RawBuilder<string> {
  return dialect.name === 'sqlite'
    ? sql<string>`(select value from json_each(${json}))`
    : sql<string>`(select jsonb_array_elements_text(${json}::jsonb))`;
}

/** A parameter in a place that does not tell its type, as in `x is null`. */
export function typed<T>(dialect: Dialect, value: T, type: 'text' | 'bigint' | 'bytea'): RawBuilder<T> {
  return dialect.name === 'sqlite' ? sql<T>`${value}` : sql<T>`cast(${value} as ${sql.raw(type)})`;
}

/** The larger of two numbers. */
export function greatest(dialect: Dialect, a: RawBuilder<number>, b: RawBuilder<number>): RawBuilder<number> {
  return dialect.name === 'sqlite' ? sql<number>`max(${a}, ${b})` : sql<number>`greatest(${a}, ${b})`;
}
