import { chmod, mkdir, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { IsolationReport } from '@reindeer/protocol';
import type { Settings } from './config/settings.ts';

/** Commands of such a sandbox reach the loopback, and with it this server: every client needs the token (D12). */
export function sandboxReachesServer(report: IsolationReport): boolean {
  return report.canExecute && (report.network === 'host' || report.provider === 'local');
}

/**
 * The token that clients need; null = none. The operator's own, or one that is kept in the data folder (readable by this user
 * alone), so that pages and scripts survive a restart.
 */
export async function accessToken(settings: Settings, report: IsolationReport): Promise<string | null> {
  if (settings.server.token !== null) return settings.server.token;
  if (!sandboxReachesServer(report)) return null;
  const file = join(settings.home, 'token');
  await mkdir(settings.home, { recursive: true, mode: 0o700 });
  const fresh = Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url');
  try {
    const handle = await open(file, 'wx', 0o600);
    try {
      await handle.writeFile(`${fresh}\n`);
    } finally {
      await handle.close();
    }
    return fresh;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    // Somebody may have loosened it, or brought it along with a copy (BL-06).
    await chmod(file, 0o600).catch(() => {});
    return (await keptToken(settings)) ?? fresh;
  }
}

/** The token that a server of this data folder made for itself; null = it needed none so far. */
export async function keptToken(settings: Pick<Settings, 'home'>): Promise<string | null> {
  try {
    const kept = (await readFile(join(settings.home, 'token'), 'utf8')).trim();
    return kept.length >= 16 ? kept : null;
  } catch {
    return null;
  }
}

/** Address for a browser on this machine; the token travels in the fragment, which is never sent to a server or logged by one. */
export function startUrl(host: string, port: number, token: string | null): string {
  const everywhere = host === '0.0.0.0' || host === '::' || host === '';
  const name = everywhere ? '127.0.0.1' : host.includes(':') ? `[${host.replace(/^\[|\]$/g, '')}]` : host;
  return `http://${name}:${port}/${token === null ? '' : `#token=${encodeURIComponent(token)}`}`;
}
