import type { DatabaseSync } from 'node:sqlite';
import { ReindeerError } from '@reindeer/protocol';
import { migrationsFrom } from '../migrations/index.ts';
import type { Migration } from '../migrations/types.ts';

/**
 * Brings a database to the newest format in one transaction: all steps or none. Of several that start at once, one does the work
 * and the others find it done (PD-02).
 * @throws ReindeerError `data_too_new`; `configuration` for a database of another program, which is left as it is
 */
export function applyMigrations(db: DatabaseSync, migrations?: readonly Migration[]): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    const tables = db.prepare("select name from sqlite_schema where type = 'table'").all();
    if (tables.length > 0 && !tables.some(({ name }) => name === 'meta')) throw foreign();
    db.exec('create table if not exists meta (name text primary key not null, value text not null) strict');
    const row = db.prepare("select value from meta where name = 'format'").get();
    if (row === undefined && tables.length > 1) throw foreign();
    const store = db.prepare(
      "insert into meta (name, value) values ('format', ?) on conflict (name) do update set value = excluded.value",
    );
    for (const { version, statements } of migrationsFrom(Number(row?.value ?? 0), 'sqlite', migrations)) {
      for (const statement of statements) db.exec(statement);
      store.run(String(version));
    }
    db.exec('COMMIT');
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}

const foreign = () =>
  new ReindeerError(
    'configuration',
    'The database in the data folder belongs to another program. Choose another folder, or move the file away.',
  );
