import type { DatabaseSync } from 'node:sqlite';
import { migrationsFrom } from '../migrations/index.ts';
import type { Migration } from '../migrations/types.ts';

/**
 * Brings a database to the newest format in one transaction: all steps or none. Of several that start at once, one does the work
 * and the others find it done (PD-02).
 * @throws ReindeerError `data_too_new`
 */
export function applyMigrations(db: DatabaseSync, migrations?: readonly Migration[]): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    db.exec('create table if not exists meta (name text primary key not null, value text not null) strict');
    const row = db.prepare("select value from meta where name = 'format'").get();
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
