import { resolve } from 'node:path';
import { backupFolder } from '@reindeer/database';
import { ReindeerError } from '@reindeer/protocol';
import { resourcesOf } from '../resources.ts';
import type { Command } from './arguments.ts';
import { EXIT, type Host } from './host.ts';
import { prepare } from './start.ts';

/** `reindeer backup <file>`: copies the database, also while a server uses it. */
export async function backup(host: Host, command: Extract<Command, { name: 'backup' }>): Promise<number> {
  const { settings } = await prepare(host, command, true);
  if (settings.postgres !== null)
    throw new ReindeerError(
      'configuration',
      'The database is Postgres: back it up with pg_dump, or as the server is backed up.',
    );
  const to = resolve(host.cwd, command.file);
  const { databaseWorker } = resourcesOf(host.entry);
  const leaving = new AbortController();
  const leave = () => leaving.abort();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) host.process.on(signal, leave);
  try {
    await backupFolder({
      folder: settings.databaseFolder,
      to,
      signal: leaving.signal,
      ...(databaseWorker === undefined ? {} : { workerUrl: databaseWorker }),
    });
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) host.process.off(signal, leave);
  }
  await host.print(`Backed up to ${to}\n`);
  host.say(`The files of threads are not in it; they are in ${settings.home}/users.\n`);
  return EXIT.done;
}
