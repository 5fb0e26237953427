import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { replaceFile } from '@reindeer/sandbox';
import { keptToken, startUrl } from '../access.ts';
import type { Settings } from '../config/settings.ts';
import type { Server } from './attach.ts';

type Place = Pick<Settings, 'home' | 'postgres' | 'server'>;
/** What the command line says of the server's address. */
interface Line {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
}

/** With SQLite one process serves a data folder, so its address can stand there. Instances on one database share the folder: theirs does not. */
const fileOf = ({ home, postgres }: Place): string | null => (postgres === null ? join(home, 'address') : null);

/**
 * Notes where the server of this data folder listens, for commands that are to reach it. A hint: a `kill -9` leaves it behind, and nothing
 * depends on it.
 *
 * @returns takes it back; never rejects
 */
export async function announce(place: Place, host: string, port: number): Promise<() => Promise<void>> {
  const file = fileOf(place);
  if (file === null) return async () => {};
  await replaceFile(file, `${JSON.stringify({ host, port })}\n`).catch(() => {});
  return () => rm(file, { force: true }).catch(() => {});
}

/** Where the server of this data folder said that it listens; null = it said nothing that can be read. */
export async function announced(place: Place): Promise<{ readonly host: string; readonly port: number } | null> {
  const file = fileOf(place);
  if (file === null) return null;
  try {
    const { host, port } = JSON.parse(await readFile(file, 'utf8')) as { host?: unknown; port?: unknown };
    return typeof host === 'string' && /^[\w.:-]{0,255}$/.test(host) && Number.isInteger(port)
      ? { host, port: Number(port) }
      : null;
  } catch {
    return null;
  }
}

/** The server that a command is to reach: the one that the command line names, else the one of this data folder, else the configured one. */
export async function runningServer(settings: Place, line: Line): Promise<Server> {
  const named = line.host !== undefined || line.port !== undefined;
  const { host, port } = (named ? null : await announced(settings)) ?? settings.server;
  const token = settings.server.token ?? (await keptToken(settings));
  return { url: startUrl(host, port, null).replace(/\/$/, ''), token };
}
