import { z } from '@hono/zod-openapi';

/** Pieces of queries and bodies that several routes take. */

export const anyObject = z.record(z.string(), z.unknown());

/** A whole number in a query. */
export const wholeNumber = (low: number, high: number, fallback: number) =>
  z.coerce.number().int().min(low).max(high).default(fallback);

/** A switch in a query: the SDK sends `1`, `0`, `true` or `false`. */
export const flag = z.enum(['true', 'false', '1', '0']).optional();
export const isSet = (value: string | undefined) => value === 'true' || value === '1';

/** One value, or several parameters of one name. */
export const oneOrMore = z.union([z.string(), z.array(z.string())]).optional();
