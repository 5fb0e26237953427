import { posix } from 'node:path';
import { ReindeerError, SKILLS_ROOT, VIRTUAL_FOLDERS, VIRTUAL_ROOT } from '@reindeer/protocol';

const MAX_PATH = 4_096;
const WORKSPACE = `${VIRTUAL_ROOT}/workspace`;

/**
 * The virtual path that a model means. Absolute paths stay; a relative one starts in the workspace, or in the folder that it names
 * first (`outputs/report.md`). Backslashes count as slashes. Throws `path_refused` outside of the thread's folders and its skills; the safe file
 * module checks everything again on the real files.
 */
export function virtualPath(path: string): string {
  const given = path.trim().replaceAll('\\', '/');
  if (given === '' || given.length > MAX_PATH || given.includes('\0'))
    throw new ReindeerError('path_refused', `"${path.slice(0, 100)}" is not a usable path.`);
  const [first = ''] = given.split('/');
  const base = (VIRTUAL_FOLDERS as readonly string[]).includes(first) ? VIRTUAL_ROOT : WORKSPACE;
  const resolved = posix.resolve(base, given);
  const clean = resolved.length > 1 ? resolved.replace(/\/+$/, '') : resolved;
  for (const root of [VIRTUAL_ROOT, SKILLS_ROOT]) if (clean === root || clean.startsWith(`${root}/`)) return clean;
  throw new ReindeerError(
    'path_refused',
    `${given} is outside of this conversation's files. Use a path in ${VIRTUAL_FOLDERS.map((folder) => `${VIRTUAL_ROOT}/${folder}`).join(', ')}.`,
  );
}

/** A path as the model should see it: the virtual one, or relative to the workspace, where commands start and no virtual paths exist. */
export function shownPath(path: string, style: 'virtual' | 'relative'): string {
  return style === 'virtual' ? path : posix.relative(WORKSPACE, path) || '.';
}
