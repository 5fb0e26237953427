import { DatabaseSync } from 'node:sqlite';
import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import { applyMigrations } from '../sqlite/migrate.ts';
import { FORMAT_VERSION, MIGRATIONS, migrationsFrom } from './index.ts';
import type { Migration } from './types.ts';

const open: DatabaseSync[] = [];
afterEach(() => {
  for (const database of open.splice(0)) database.close();
});
const empty = () => {
  const database = new DatabaseSync(':memory:');
  open.push(database);
  return database;
};
/** Tables and indexes with their whole definitions: columns, types, defaults, uniqueness. */
const schema = (database: DatabaseSync) =>
  database.prepare('select type, name, tbl_name, sql from sqlite_schema order by name').all();
const tables = (database: DatabaseSync) =>
  database
    .prepare("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%' order by name")
    .all()
    .map((row) => row.name);
const format = (database: DatabaseSync) =>
  database.prepare("select value from meta where name = 'format'").get()?.value;

test('versions are numbered 1, 2, 3, …', () => {
  expect(MIGRATIONS.map((migration) => migration.version)).toEqual(MIGRATIONS.map((_, index) => index + 1));
  expect(FORMAT_VERSION).toBe(MIGRATIONS.length);
});

test('a database that came up step by step is the same as a fresh one', verifies('PD-01'), () => {
  const fresh = empty();
  applyMigrations(fresh);
  const stepped = empty();
  for (const { version } of MIGRATIONS) {
    applyMigrations(stepped, MIGRATIONS.slice(0, version));
    expect(format(stepped)).toBe(String(version));
  }
  expect(schema(stepped)).toEqual(schema(fresh));
  expect(schema(fresh).length).toBeGreaterThan(10);
});

test('the first step makes only what belongs to it', verifies('PD-04'), () => {
  const database = empty();
  applyMigrations(database, MIGRATIONS.slice(0, 1));
  expect(tables(database)).toEqual([
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
});

test('a second start changes nothing', () => {
  const database = empty();
  applyMigrations(database);
  const before = schema(database);
  applyMigrations(database);
  expect(schema(database)).toEqual(before);
});

test('data of a newer version is refused and left as it is', () => {
  const database = empty();
  applyMigrations(database);
  database.exec(`update meta set value = '${FORMAT_VERSION + 1}' where name = 'format'`);
  const attempt = (): void => applyMigrations(database);
  expect(attempt).toThrow(ReindeerError);
  expect(attempt).toThrow(/newer version of Reindeer/);
  expect(() => migrationsFrom(FORMAT_VERSION + 1, 'sqlite')).toThrow(expect.objectContaining({ code: 'data_too_new' }));
  expect(format(database)).toBe(String(FORMAT_VERSION + 1));
  expect(database.isTransaction).toBe(false);
});

test('a step that fails undoes all steps of the start, and holds nothing', verifies('PD-06'), () => {
  const database = empty();
  applyMigrations(database, MIGRATIONS.slice(0, 1));
  const before = schema(database);
  const broken: Migration = { version: 3, statements: () => ['create table extra (a text) strict', 'nonsense'] };
  expect(() => applyMigrations(database, [...MIGRATIONS.slice(0, 2), broken])).toThrow(/nonsense/);
  expect(schema(database)).toEqual(before);
  expect(format(database)).toBe('1');
  expect(database.isTransaction).toBe(false);
  applyMigrations(database);
  expect(format(database)).toBe(String(FORMAT_VERSION));
});

test('the same tables exist on both databases', () => {
  const names = (dialect: 'sqlite' | 'postgres') =>
    migrationsFrom(0, dialect)
      .flatMap(({ statements }) => statements)
      .map((statement) => /create (?:unique )?(?:table|index) (\w+)/.exec(statement)?.[1]);
  expect(names('postgres')).toEqual(names('sqlite'));
  expect(
    migrationsFrom(0, 'postgres')
      .flatMap(({ statements }) => statements)
      .join(),
  ).not.toMatch(/strict|rowid|blob/);
});
