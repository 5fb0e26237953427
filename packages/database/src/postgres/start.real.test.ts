import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Identity } from '../meta.ts';
import { FORMAT_VERSION, MIGRATIONS } from '../migrations/index.ts';
import type { Migration } from '../migrations/types.ts';
import { missing, postgresOfFile } from '../testing/postgres.ts';
import { applyMigrations, startAlone } from './migrate.ts';
import { openPostgres, type PostgresStores } from './open.ts';

const { server, database, open } = postgresOfFile();
const CHILD = fileURLToPath(new URL('./start.child.ts', import.meta.url));

/** Columns, indexes and constraints with their whole definitions. */
const SCHEMA = `
  select table_name as name, column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(column_default, '') || is_identity as what
    from information_schema.columns where table_schema = current_schema()
  union all select tablename, indexdef from pg_indexes where schemaname = current_schema()
  union all select conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid) from pg_constraint where connamespace = current_schema()::regnamespace
  order by 1, 2`;
const schema = (url: string) => server().query(url, SCHEMA);
const format = async (url: string) =>
  (await server().query<{ value: string }>(url, "select value from meta where name = 'format'"))[0]?.value;

async function migrate(url: string, migrations?: readonly Migration[]): Promise<void> {
  const client = await server().connect(url);
  try {
    await startAlone(client, () => applyMigrations(client, migrations));
  } finally {
    await client.end();
  }
}

describe('the start of several instances on Postgres', () => {
  let folder = '';
  const opened = new Set<PostgresStores>();
  const children = new Set<ChildProcess>();
  beforeEach(async (ctx) => {
    if (missing !== null) ctx.skip(missing);
    folder = await mkdtemp(join(tmpdir(), 'reindeer-data-'));
  });
  afterEach(async () => {
    for (const child of children) child.kill('SIGKILL');
    children.clear();
    for (const stores of opened) await stores.close();
    opened.clear();
    await rm(folder, { recursive: true, force: true });
  });
  const openOne: typeof open = async (url, part) => {
    const stores = await open(url, part);
    opened.add(stores);
    return stores;
  };
  type Said = Identity & { readonly databaseId: string };
  async function startChild(url: string): Promise<{ said: Promise<Said>; child: ChildProcess }> {
    const child = spawn(process.execPath, [CHILD, url], { stdio: ['pipe', 'pipe', 'inherit'] });
    children.add(child);
    const said = (async () => {
      for await (const line of createInterface({ input: child.stdout })) return JSON.parse(line) as Said;
      throw new Error('A process ended without a word.');
    })();
    return { said, child };
  }

  for (const count of [2, 5, 10])
    test(`${count} processes that start at once on an empty database agree`, verifies('PD-02'), async () => {
      const url = await server().createDatabase();
      const started = await Promise.all(Array.from({ length: count }, () => startChild(url)));
      const all = await Promise.all(started.map(({ said }) => said));
      expect(new Set(all.map((one) => one.epoch)).size).toBe(1);
      expect(new Set(all.map((one) => one.databaseId)).size).toBe(1);
      expect(all.map((one) => one.instanceId).sort()).toEqual(
        Array.from({ length: count }, (_, index) => `instance-${index + 1}`).sort(),
      );
      const migrated = await schema(url);
      const [template] = [await database()];
      expect(migrated).toEqual(await schema(template));

      // A late one changes nothing.
      const late = await openOne(url);
      expect(late.identity).toMatchObject({ epoch: all[0]?.epoch, instanceId: `instance-${count + 1}` });
      expect(await schema(url)).toEqual(migrated);
      for (const { child } of started) {
        const exited = once(child, 'exit');
        child.stdin?.end();
        expect(await exited).toEqual([0, null]);
      }
    });

  test('a machine whose clock is a minute off does not join the others', async () => {
    const url = await database();
    const at = (offset: number) => {
      const surroundings = testSurroundings({ seed: 77 });
      const clock = Object.assign(Object.create(surroundings.clock), { now: () => Date.now() + offset });
      return { surroundings: { ...surroundings, clock }, clocksDifferMs: 3_000 };
    };
    for (const [offset, where] of [
      [60_000, 'ahead of'],
      [-60_000, 'behind'],
    ] as const) {
      const refused = await openOne(url, at(offset)).catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: 'configuration' });
      expect(String(refused)).toMatch(new RegExp(`(59|60)\\.\\d s ${where} the database's.*grace_seconds`));
    }
    expect((await openOne(url, at(2_000))).identity.instanceId).toBe('instance-1');
  });

  test(
    'a starting one that stops in the middle holds up nobody once it is killed',
    verifies('PD-02', 'PD-06'),
    async () => {
      const url = await server().createDatabase();
      const stuck = await server().connect(url);
      let inside: () => void = () => {};
      const working = new Promise<void>((resolve) => {
        inside = resolve;
      });
      const dead = startAlone(stuck, async () => {
        await stuck.query('create table half (a int)');
        inside();
        await new Promise<never>(() => {});
      });
      dead.catch(() => {});
      await working;
      const waiting = open(url);
      const pid = (
        await server().query<{ pid: number }>(
          url,
          "select pid from pg_stat_activity where query like 'create table half%'",
        )
      )[0]?.pid;
      await server().query(url, 'select pg_terminate_backend($1)', [pid]);
      opened.add(await waiting);
      expect(await format(url)).toBe(String(FORMAT_VERSION));
      expect(JSON.stringify(await schema(url))).not.toContain('half');
    },
  );

  test('a database that came up step by step is the same as a fresh one', verifies('PD-01', 'PD-04'), async () => {
    const stepped = await server().createDatabase();
    await migrate(stepped, MIGRATIONS.slice(0, 1));
    const first = await server().query<{ name: string }>(
      stepped,
      'select tablename as name from pg_tables where schemaname = current_schema() order by 1',
    );
    expect(first.map((row) => row.name)).toEqual([
      'facts',
      'meta',
      'run_details',
      'run_keys',
      'run_leases',
      'runs',
      'thread_keys',
      'threads',
      'tool_calls',
    ]);
    for (const { version } of MIGRATIONS) {
      await migrate(stepped, MIGRATIONS.slice(0, version));
      expect(await format(stepped)).toBe(String(version));
    }
    // What belongs to no version is made by every start.
    await (await open(stepped)).close();
    const fresh = await schema(await database());
    expect(fresh.length).toBeGreaterThan(60);
    expect(await schema(stepped)).toEqual(fresh);
  });

  test('a step that fails undoes all steps of the start, and holds nothing', verifies('PD-06'), async () => {
    const url = await server().createDatabase();
    const broken: Migration = { version: 3, statements: () => ['create table extra (a text)', 'nonsense'] };
    await expect(migrate(url, [...MIGRATIONS.slice(0, 2), broken])).rejects.toThrow(/nonsense/);
    expect(await schema(url)).toEqual([]);
    await migrate(url);
    expect(await format(url)).toBe(String(FORMAT_VERSION));
  });

  test('data of a newer version is refused and left as it is', async () => {
    const url = await database();
    await server().query(url, "update meta set value = '99' where name = 'format'");
    const before = await schema(url);
    await expect(open(url)).rejects.toMatchObject({ code: 'data_too_new' });
    expect(await schema(url)).toEqual(before);
  });

  test('instances share a folder; one of another database is refused and says why', async () => {
    const url = await database();
    const [a, b] = await Promise.all([openOne(url, { folder }), openOne(url, { folder })]);
    expect(a.databaseId).toBe(b.databaseId);
    const mark = join(folder, 'reindeer.database');
    expect(await readFile(mark, 'utf8')).toBe(`${a.databaseId}\n`);
    const other = await server().createDatabase();
    await expect(open(other, { folder })).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining(`belongs to another database (${a.databaseId}`),
    });
    await writeFile(mark, '');
    await expect(open(url, { folder })).rejects.toMatchObject({ code: 'configuration' });
    expect(await readFile(mark, 'utf8')).toBe('');
  });

  test('a restart takes the place of the dead instance, under the same epoch, and never that of a living one', async () => {
    const url = await database();
    const first = await openOne(url);
    const second = await openOne(url);
    expect([first, second].map((one) => one.identity.instanceId)).toEqual(['instance-1', 'instance-2']);
    await first.close();
    await first.close();
    await expect(first.runs.get('x')).rejects.toMatchObject({ code: 'store_unavailable' });
    const again = await openOne(url);
    expect(again.identity).toMatchObject({
      instanceId: 'instance-1',
      epoch: first.identity.epoch,
      deadOwners: ['instance-1'],
    });
    expect(again.identity.owner).not.toBe(first.identity.owner);
  });

  test('two living instances cannot have one id', async () => {
    const url = await database();
    const first = await openOne(url, { instanceId: 'left' });
    const attempt = open(url, { instanceId: 'left' });
    await expect(attempt).rejects.toMatchObject({ code: 'configuration', detail: { instanceId: 'left' } });
    // It waits for a predecessor that is about to end.
    const waiting = open(url, { instanceId: 'left' });
    await first.close();
    const second = await waiting;
    opened.add(second);
    expect(second.identity.instanceId).toBe('left');
  });

  test('a copy of a database is another history: the epoch changes', async () => {
    const url = await database();
    const original = await openOne(url);
    const { epoch } = original.identity;
    await original.close();
    const copy = await openOne(await server().createDatabase(url));
    expect(copy.identity.epoch).not.toBe(epoch);
    expect(await copy.log.epoch()).toBe(copy.identity.epoch);
    expect(copy.databaseId).toBe(original.databaseId);
  });

  test('what cannot work says what to change, and shows no password', async () => {
    const surroundings = testSurroundings();
    const attempt = (url: string) =>
      openPostgres({ url, folder: null, surroundings }).then(
        () => null,
        (error: unknown) => error,
      );
    for (const url of ['nonsense secret', 'mysql://user:secret@127.0.0.1/x']) {
      const error = await attempt(url);
      expect(error).toMatchObject({ code: 'configuration', message: expect.stringContaining('postgres://') });
      expect(String(error)).not.toContain('secret');
    }
    expect(await attempt(`${server().url}_missing`)).toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('does not exist'),
    });
    expect(await attempt('postgres://user:secret@127.0.0.1:1/x')).toMatchObject({
      code: 'store_unavailable',
      retryable: true,
    });
  });
});
