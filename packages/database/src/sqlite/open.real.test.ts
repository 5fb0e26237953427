import { copyFile, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { leakCheck, Scene, testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MIGRATIONS } from '../migrations/index.ts';
import { DATABASE_FILE, openSqlite, type SqliteStores } from './open.ts';

let folder = '';
const opened = new Set<SqliteStores>();

leakCheck();
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-data-'));
});
afterEach(async () => {
  for (const stores of opened) await stores.close();
  opened.clear();
  await rm(folder, { recursive: true, force: true });
});

let starts = 0;
/** Another seed per start: no two processes draw the same ids. */
const open = async (where = folder): Promise<SqliteStores> => {
  starts += 1;
  const stores = await openSqlite({ folder: where, surroundings: testSurroundings({ seed: starts }) });
  opened.add(stores);
  return stores;
};
const scene = (stores: SqliteStores) => new Scene({ a: stores, b: stores, close: () => stores.close() });
const inDatabase = (work: (database: DatabaseSync) => void): void => {
  const database = new DatabaseSync(join(folder, DATABASE_FILE));
  try {
    work(database);
  } finally {
    database.close();
  }
};

test('what was written is there after a stop, under the same epoch and instance, and another owner', async () => {
  const first = await open();
  const { run, fence } = await scene(first).running({ owner: first.identity.owner });
  await first.log.append({ fence, threadId: 'thread', facts: [scene(first).fact('x')], now: 1 });
  expect((await stat(join(folder, DATABASE_FILE))).mode & 0o777).toBe(0o600);
  expect(first.identity.deadOwners).toEqual([]);
  await first.close();
  await first.close();
  await expect(first.runs.get(run.runId)).rejects.toMatchObject({ code: 'store_unavailable' });

  const second = await open();
  expect(await second.runs.get(run.runId)).toMatchObject({ runId: run.runId, status: 'running' });
  expect(await scene(second).history()).toEqual(['run-1 pending 0', 'run-1 running 1', 'run-1 "x"']);
  const { epoch, instanceId, owner } = first.identity;
  expect(second.identity).toMatchObject({ epoch, instanceId, deadOwners: [owner] });
  expect(second.identity.owner).not.toBe(owner);
  expect(second.identity.owner.startsWith(`${instanceId}:`)).toBe(true);
});

test('a power cut changes the epoch, a clean stop before a new boot does not', async () => {
  const first = await open();
  const { epoch } = first.identity;
  expect(epoch).toMatch(/^[a-z0-9]{1,16}$/);
  await first.close();
  inDatabase((database) => database.exec("update meta set value = 'another boot' where name = 'boot'"));
  const second = await open();
  expect(second.identity.epoch).toBe(epoch);
  await second.close();
  inDatabase((database) => {
    database.exec("update meta set value = 'another boot' where name = 'boot'");
    database.exec("insert into meta (name, value) values ('open', 'somebody')");
  });
  const third = await open();
  expect(third.identity.epoch).not.toBe(epoch);
  expect(await third.log.epoch()).toBe(third.identity.epoch);
});

test('a backup is whole, is made while others work, overwrites nothing, and begins a new epoch', async () => {
  const stores = await open();
  const work = scene(stores);
  const { fence } = await work.running();
  const file = join(folder, 'copy.db');
  const append = (n: number) => stores.log.append({ fence, threadId: 'thread', facts: [work.fact(`f${n}`)], now: n });
  await append(0);
  const [, ...appended] = await Promise.all([
    stores.backup(file),
    ...Array.from({ length: 50 }, (_, n) => append(n + 1)),
  ]);
  expect(appended.every((answer) => answer.outcome === 'ok')).toBe(true);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  await expect(stores.backup(file)).rejects.toMatchObject({ code: 'precondition_failed' });
  await expect(stores.backup(join(folder, 'missing', 'copy.db'))).rejects.toMatchObject({ code: 'store_unavailable' });
  await stores.close();

  const target = join(folder, 'restored');
  const made = await open(target);
  await made.close();
  await copyFile(file, join(target, DATABASE_FILE));
  const restored = await open(target);
  expect(restored.identity.epoch).not.toBe(stores.identity.epoch);
  const history = await scene(restored).history();
  expect(history.slice(0, 3)).toEqual(['run-1 pending 0', 'run-1 running 1', 'run-1 "f0"']);
  await restored.close();
  // Only the first start after the restore changes it.
  const again = await open(target);
  expect(again.identity.epoch).toBe(restored.identity.epoch);
});

test('an opening that fails leaves nothing locked and no thread', verifies('PD-07'), async () => {
  await (await open()).close();
  inDatabase((database) => database.exec("update meta set value = '999' where name = 'format'"));
  await expect(open()).rejects.toMatchObject({ code: 'data_too_new', detail: { format: 999 } });
  inDatabase((database) => database.exec(`update meta set value = '${MIGRATIONS.length}' where name = 'format'`));
  await (await open()).close();
  await writeFile(join(folder, DATABASE_FILE), 'this is no database, and long enough for SQLite to see it'.repeat(20));
  await expect(open()).rejects.toMatchObject({
    code: 'store_unavailable',
    message: expect.stringContaining('damaged'),
  });
});

test('a worker that cannot be loaded is a clear failure', async () => {
  const workerUrl = new URL('./no-such-worker.js', import.meta.url);
  await expect(openSqlite({ folder, surroundings: testSurroundings(), workerUrl })).rejects.toMatchObject({
    code: 'store_unavailable',
  });
  await (await open()).close();
});

test('hints come once per flush and thread, with what was committed', async () => {
  const stores = await open();
  const work = scene(stores);
  const { fence } = await work.running();
  const heard: [string, number][] = [];
  stores.log.onAppend((threadId, head) => heard.push([threadId, head]));
  await Promise.all(
    [1, 2, 3].map((n) => stores.log.append({ fence, threadId: 'thread', facts: [work.fact(`f${n}`)], now: n })),
  );
  expect(heard).toEqual([['thread', 5]]);
  // A repeat appends nothing and tells nobody.
  await stores.log.append({ fence, threadId: 'thread', facts: [work.fact('f1')], now: 1 });
  expect(heard).toHaveLength(1);
});

test('statistics count rows and bytes of tables without indexes', async () => {
  const stores = await open();
  const work = scene(stores);
  const { fence } = await work.running();
  const data = 'x'.repeat(100_000);
  await stores.log.append({ fence, threadId: 'thread', facts: [work.fact('big', data)], now: 1 });
  const { tables, rowBytes, fileBytes, logBytes } = await stores.stats();
  const facts = tables.find((table) => table.name === 'facts');
  expect(facts?.rows).toBe(3);
  expect(facts?.bytes).toBeGreaterThan(data.length);
  expect(facts?.bytes).toBeLessThan(data.length * 1.01);
  expect(tables.find((table) => table.name === 'run_leases')).toMatchObject({ rows: 1 });
  expect(rowBytes).toBe(tables.reduce((sum, table) => sum + table.bytes, 0));
  expect(fileBytes).toBeGreaterThan(rowBytes);
  expect(logBytes).toBeGreaterThan(0);
  await stores.close();
  expect((await stat(join(folder, DATABASE_FILE))).size).toBe(fileBytes);
});

test.each(['create table theirs (x)', 'create table meta (name text, value text); create table theirs (x)'])(
  'a database of another program is named and left as it is: %s',
  async (theirs) => {
    inDatabase((database) => database.exec(theirs));
    const tables = () => {
      const found: unknown[] = [];
      inDatabase((database) => found.push(...database.prepare('select sql from sqlite_schema').all()));
      return found;
    };
    const before = tables();
    await expect(open()).rejects.toMatchObject({
      code: 'configuration',
      message: expect.stringContaining('another program'),
    });
    expect(tables()).toEqual(before);
  },
);

test('a folder in the place of the database file is named', async () => {
  await mkdir(join(folder, DATABASE_FILE));
  await expect(open()).rejects.toMatchObject({
    code: 'configuration',
    message: expect.stringContaining(join(folder, DATABASE_FILE)),
  });
});
