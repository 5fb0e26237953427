import { readdir, readFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import mime from 'mime';
import { PAGE_POLICY } from './guards.ts';
import type { RequestContext } from './route.ts';

/** The built web app, read once at start: what is not in the list does not exist, whatever the address says. */
export interface Page {
  /** File by its path below the build folder, e.g. `assets/main-3f2a.js`. */
  readonly files: ReadonlyMap<
    string,
    { readonly bytes: Uint8Array<ArrayBuffer>; readonly type: string; readonly immutable: boolean }
  >;
}

export const NO_PAGE: Page = { files: new Map() };

const MAX_FILES = 2000;
const MAX_BYTES = 64 * 1024 * 1024;

/** Reads the build folder; a missing one is `NO_PAGE`. Maps for debuggers are left out. */
export async function loadPage(folder: string): Promise<Page> {
  let entries: Awaited<ReturnType<typeof readEntries>>;
  try {
    entries = await readEntries(folder);
  } catch {
    return NO_PAGE;
  }
  const files = new Map<string, { bytes: Uint8Array<ArrayBuffer>; type: string; immutable: boolean }>();
  let size = 0;
  for (const path of entries) {
    const bytes = new Uint8Array(await readFile(join(folder, path)));
    size += bytes.byteLength;
    if (size > MAX_BYTES) break;
    const type = mime.getType(path) ?? 'application/octet-stream';
    const text = type.startsWith('text/') || type === 'application/json' || type === 'image/svg+xml';
    files.set(path.split(sep).join('/'), {
      bytes,
      type: text ? `${type}; charset=utf-8` : type,
      // The build puts a hash of the content into these names.
      immutable: /^assets[/\\].*-[A-Za-z0-9_-]{6,}\.[a-z0-9]+$/.test(path),
    });
  }
  return { files };
}

async function readEntries(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.map'))
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .slice(0, MAX_FILES);
}

const ABSENT = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Reindeer</title>
<style>body{font:16px/1.6 system-ui,sans-serif;max-width:42rem;margin:15vh auto;padding:0 1.5rem;color-scheme:light dark}code{background:#8882;padding:.1em .3em;border-radius:.3em}</style>
<h1>Reindeer is running</h1>
<p>Its web page has not been built on this machine. Stop the server, run <code>npm run build</code>, and start it again; <code>npm start</code> does both.</p>
<p>The API works already: see <a href="/openapi.json">/openapi.json</a> and <a href="/health">/health</a>, or try <code>npm run reindeer -- run "hello"</code>.</p>
</html>
`;

/** Answers a GET outside the API: a file of the build, or the app itself for addresses that only it knows. null = not ours. */
export function servePage(c: RequestContext, page: Page): Response | null {
  const path = safeDecode(c.req.path).replace(/^\/+/, '') || 'index.html';
  const found = page.files.get(path);
  const wantsPage = (c.req.header('accept') ?? '*/*').includes('text/html') || c.req.path === '/';
  const file = found ?? (wantsPage && !/\.[a-z0-9]{1,8}$/i.test(path) ? page.files.get('index.html') : undefined);
  const headers = {
    'content-security-policy': PAGE_POLICY,
    'cache-control': file?.immutable === true ? 'public, max-age=31536000, immutable' : 'no-cache',
  };
  if (file !== undefined) return c.body(file.bytes, 200, { ...headers, 'content-type': file.type });
  if (page.files.size === 0 && wantsPage && (path === 'index.html' || !path.includes('.')))
    return c.html(ABSENT, 200, headers);
  return null;
}

function safeDecode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
