export { MemoryDatabase, openMemory } from './memory/index.ts';
export type { Identity } from './meta.ts';
export { openPostgres, type PostgresOptions, type PostgresStores } from './postgres/open.ts';
export { openPostgresOwnership, type PostgresOwnershipOptions } from './postgres/ownership.ts';
export { backupFolder } from './sqlite/backup-folder.ts';
export { type DatabaseStats, openSqlite, type SqliteOptions, type SqliteStores } from './sqlite/open.ts';
export type { TableStats } from './stats.ts';
