import type { ClientBase } from 'pg';
import { migrationsFrom } from '../migrations/index.ts';
import type { Migration } from '../migrations/types.ts';

/** Tells the lock of a start from other locks of the database. */
const START_LOCK = 0x52_44_00_01;

/**
 * Runs what must be done by one starting instance at a time, in one transaction: all of it or none. The lock belongs to the transaction,
 * so it ends with it, however that ends (PD-06); others wait for it as long as it takes (PD-02).
 */
export async function startAlone<T>(client: ClientBase, work: () => Promise<T>): Promise<T> {
  await client.query('begin');
  try {
    await client.query('set local statement_timeout = 0');
    await client.query('set local lock_timeout = 0');
    await client.query(`select pg_advisory_xact_lock(${START_LOCK})`);
    const result = await work();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}

/**
 * Brings the database to the newest format, inside `startAlone`.
 * @throws ReindeerError `data_too_new`
 */
export async function applyMigrations(client: ClientBase, migrations?: readonly Migration[]): Promise<void> {
  await client.query('create table if not exists meta (name text primary key not null, value text not null)');
  const { rows } = await client.query<{ value: string }>("select value from meta where name = 'format'");
  for (const { version, statements } of migrationsFrom(Number(rows[0]?.value ?? 0), 'postgres', migrations)) {
    for (const statement of statements) await client.query(statement);
    await client.query(
      "insert into meta (name, value) values ('format', $1) on conflict (name) do update set value = excluded.value",
      [String(version)],
    );
  }
}
