import {
  type OpenedStores,
  postgresMissing,
  type ThrowawayPostgres,
  testSurroundings,
  throwawayPostgres,
} from '@reindeer/testkit';
import type { Client } from 'pg';
import { afterAll, beforeAll } from 'vitest';
import { openPostgres, type PostgresOptions, type PostgresStores } from '../postgres/open.ts';

/** Why the tests of a file that needs Postgres are skipped; null = they run. */
export const missing = await postgresMissing();

/** A server for the test file, and databases on it that are copies of a migrated one. */
export interface PostgresOfFile {
  readonly server: () => ThrowawayPostgres;
  /** The URL of a fresh, migrated database. */
  readonly database: () => Promise<string>;
  /** Opens a database as one more process; `database` = a fresh one. */
  readonly open: (url?: string, part?: Partial<PostgresOptions>) => Promise<PostgresStores>;
  /** Two "processes" on an empty database. `close` empties it for the next caller: a fresh one costs ten times as much. */
  readonly pair: () => Promise<OpenedStores>;
  /** Two plain connections to an empty database. `close` empties it for the next caller. */
  readonly unisolated: () => Promise<{ readonly held: Client; readonly peer: Client; close(): Promise<void> }>;
}

/** Faster than truncating, which makes new files for every table and index. */
const EMPTY = `do $$ declare name text; begin
  for name in select tablename from pg_tables where schemaname = current_schema() and tablename <> 'meta' loop
    execute format('delete from %I', name);
  end loop;
end $$`;

/** Registers the server's start and stop with the file. Does nothing where there is no Postgres. */
export function postgresOfFile(): PostgresOfFile {
  let server: ThrowawayPostgres | null = null;
  let template = '';
  let seed = 0;
  beforeAll(async () => {
    if (missing !== null) return;
    server = await throwawayPostgres();
    template = await server.createDatabase();
    await (await open(template)).close();
  });
  interface Pair {
    readonly a: PostgresStores;
    readonly b: PostgresStores;
    readonly cleaner: Client;
  }
  const opened: Pair[] = [];
  const free: Pair[] = [];
  afterAll(async () => {
    await Promise.all(opened.flatMap(({ a, b, cleaner }) => [a.close(), b.close(), cleaner.end()]));
    await server?.stop();
  });
  const running = (): ThrowawayPostgres => {
    if (server === null) throw new Error('The Postgres of this file does not run.');
    return server;
  };
  const database = (): Promise<string> => running().createDatabase(template);
  const open = async (url?: string, part: Partial<PostgresOptions> = {}): Promise<PostgresStores> => {
    seed += 1;
    return openPostgres({
      url: url ?? (await database()),
      folder: null,
      surroundings: testSurroundings({ seed }),
      connections: 4,
      ...part,
    });
  };
  const openPair = async (): Promise<Pair> => {
    const url = await database();
    const [a, b, cleaner] = await Promise.all([open(url), open(url), running().connect(url)]);
    opened.push({ a, b, cleaner });
    return { a, b, cleaner };
  };
  const pair = async (): Promise<OpenedStores> => {
    const one = free.pop() ?? (await openPair());
    return {
      ...one,
      close: async () => {
        await one.cleaner.query(EMPTY);
        free.push(one);
      },
    };
  };
  const plain: { readonly held: Client; readonly peer: Client }[] = [];
  const freePlain: { readonly held: Client; readonly peer: Client }[] = [];
  afterAll(async () => {
    await Promise.all(plain.flatMap(({ held, peer }) => [held.end(), peer.end()]));
  });
  const openPlain = async () => {
    const url = await database();
    const [held, peer] = await Promise.all([running().connect(url), running().connect(url)]);
    plain.push({ held, peer });
    return { held, peer };
  };
  const unisolated = async () => {
    const one = freePlain.pop() ?? (await openPlain());
    return {
      ...one,
      close: async () => {
        await one.peer.query(EMPTY);
        freePlain.push(one);
      },
    };
  };
  return { server: running, database, open, pair, unisolated };
}
