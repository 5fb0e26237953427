import type { Random } from './ports.ts';

/** A thread id, and every other id that becomes part of a path or a URL (ID-1). */
const ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;

/** Is this a valid thread, run or assistant id? */
export function isId(value: unknown): value is string {
  return typeof value === 'string' && ID_PATTERN.test(value);
}

/** For whom a request is that names nobody. */
export const DEFAULT_USER = 'default';

/** A fresh UUID from the given source of randomness; used for threads, runs and messages. */
export function newId(random: Random): string {
  return random.uuid();
}

/** A fresh fencing token: new at every acquisition of an exclusive right, never derived from an identity (D1). */
export function newToken(random: Random): string {
  return random.uuid();
}
