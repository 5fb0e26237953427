import type { Duplex } from 'node:stream';
import { ReindeerError } from '@reindeer/protocol';
import type pg from 'pg';

export type Driver = typeof pg;

/** The version that this program is tested with. */
const VERSION = '8.23.1';

/**
 * Loads the database driver, which is a separate install: a laptop on SQLite has no use for it.
 * @throws ReindeerError `configuration` that names the command
 */
export async function loadDriver(): Promise<Driver> {
  try {
    return (await import('pg')).default;
  } catch (cause) {
    throw new ReindeerError(
      'configuration',
      `The Postgres driver is not installed. Run "npm install pg@${VERSION}" in the folder of Reindeer, or use SQLite.`,
      { cause },
    );
  }
}

/**
 * Ends a connection without asking the server, which may not answer any more; what is on its way is rejected. The driver's own `end`
 * waits for answers in pipeline mode.
 */
export function cut(client: pg.ClientBase): void {
  (client as unknown as { readonly connection: { readonly stream: Duplex } }).connection.stream.destroy();
}

/** Ends gracefully what `end` ends; cuts `clients` when that takes longer than `patienceMs`. Never rejects. */
export async function endWithin(
  patienceMs: number,
  end: () => Promise<unknown>,
  clients: () => Iterable<pg.ClientBase>,
): Promise<void> {
  const timer = setTimeout(() => {
    for (const client of clients()) cut(client);
  }, patienceMs);
  await end().catch(() => {});
  clearTimeout(timer);
}

const BIGINT = 20;
const NUMERIC = 1700;

/** Whole numbers come as text from the server; ours have at most 53 bits. */
export function numbersAsNumbers(driver: Driver): pg.CustomTypesConfig {
  const toNumber = (text: string): number => {
    const value = Number(text);
    if (!Number.isSafeInteger(value)) throw new RangeError(`The stored number ${text} is out of range.`);
    return value;
  };
  return {
    getTypeParser: (oid: number, format?: 'text' | 'binary') =>
      oid === BIGINT ? toNumber : oid === NUMERIC ? Number : driver.types.getTypeParser(oid, format),
  } as pg.CustomTypesConfig;
}
