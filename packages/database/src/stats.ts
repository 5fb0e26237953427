import { type Kysely, sql } from 'kysely';
import { defineScript, defineStatement } from './executor.ts';
import type { Database } from './schema.ts';

/** How much a table holds. */
export interface TableStats {
  readonly name: string;
  readonly rows: number;
  /** Bytes of its rows, without indexes; on SQLite also without free space and page overhead. */
  readonly bytes: number;
}

export interface StoredStats {
  readonly tables: readonly TableStats[];
  /** Size of the database file, with what still stands in the write-ahead log moved into it. */
  readonly fileBytes: number;
}

/** From SQLite's own page statistics. Reads the whole file: for measurements, not for serving. */
const tablesOfSqlite = (db: Kysely<Database>) =>
  db
    .selectFrom(
      sql<{ name: string; pagetype: string; ncell: number; payload: number }>`(select * from dbstat)`.as('pages'),
    )
    .innerJoin(
      sql<{ name: string; clustered: number }>`
        (select name, sql like '%without rowid%' as clustered from sqlite_schema where type = 'table')`.as('tables'),
      (join) => join.onRef('tables.name', '=', 'pages.name'),
    )
    .select([
      'tables.name',
      // Inner pages of an ordinary table hold keys only; those of a clustered one hold rows, too.
      sql<number>`sum(case when pages.pagetype = 'leaf' or tables.clustered then pages.ncell else 0 end)`.as('rows'),
      sql<number>`sum(pages.payload)`.as('bytes'),
    ])
    .groupBy('tables.name')
    .orderBy('tables.name');

/** Rows as the server estimates them; bytes with its page overhead. */
const tablesOfPostgres = (db: Kysely<Database>) =>
  db
    .selectFrom(
      sql<{ name: string; rows: number; bytes: number }>`
        (select relname as name, n_live_tup as rows, pg_table_size(relid) as bytes
         from pg_stat_user_tables where schemaname = current_schema())`.as('tables'),
    )
    .select(['tables.name', 'tables.rows', 'tables.bytes'])
    .orderBy('tables.name');

const tables = defineStatement((db, _p: object, dialect) =>
  dialect.name === 'sqlite' ? tablesOfSqlite(db) : tablesOfPostgres(db),
);

const size = defineStatement((db, _p: object, dialect) =>
  dialect.name === 'sqlite'
    ? db
        .selectFrom([
          sql<{ page_count: number }>`pragma_page_count`.as('count'),
          sql<{ page_size: number }>`pragma_page_size`.as('size'),
        ])
        .select(sql<number>`count.page_count * size.page_size`.as('bytes'))
    : db.selectNoFrom(sql<number>`pg_database_size(current_database())`.as('bytes')),
);

export const statsScripts = {
  'database.stats': defineScript('database.stats', 'read', async (tx, _input: object): Promise<StoredStats> => {
    return {
      tables: (await tx.all(tables, {})).map(({ name, rows, bytes }) => ({ name, rows, bytes })),
      fileBytes: (await tx.first(size, {}))?.bytes ?? 0,
    };
  }),
};
