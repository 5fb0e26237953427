export { MemoryDatabase, openMemory } from './memory/index.ts';
export { openPostgres, type PostgresStores } from './postgres/open.ts';
export { openPostgresOwnership } from './postgres/ownership.ts';
export { backupFolder } from './sqlite/backup-folder.ts';
export { type DatabaseStats, openSqlite, type SqliteStores } from './sqlite/open.ts';
