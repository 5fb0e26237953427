import { ReindeerError } from '@reindeer/protocol';
import { show } from './virtual-path.ts';

/** The code of a system error (`ENOENT`), or undefined. */
export function systemCode(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

export function refused(path: string, why: string): ReindeerError {
  return new ReindeerError('path_refused', `${show(path)}: ${why}`, { detail: { path: show(path) } });
}

export function notFound(path: string, what = 'no such file or folder'): ReindeerError {
  return new ReindeerError('not_found', `${show(path)}: ${what}`, { detail: { path: show(path) } });
}

/** What a system error means, in words that name no real path (SL-05). The original stays in `cause`, for logs only. */
export function toFileError(error: unknown, path: string): ReindeerError {
  if (ReindeerError.is(error)) return error;
  const options = { cause: error, detail: { path: show(path) } };
  const code = systemCode(error);
  switch (code) {
    case 'ENOENT':
      return new ReindeerError('not_found', `${show(path)}: no such file or folder`, options);
    case 'ELOOP':
    case 'EMLINK':
      return new ReindeerError(
        'path_refused',
        `${show(path)}: leads through a symbolic link; links are not followed`,
        options,
      );
    case 'ENOTDIR':
      return new ReindeerError('path_refused', `${show(path)}: a part of the path is not a folder`, options);
    case 'EISDIR':
      return new ReindeerError('path_refused', `${show(path)}: is a folder, not a file`, options);
    case 'ENXIO':
    case 'ENODEV':
    case 'EOPNOTSUPP':
      return new ReindeerError('path_refused', `${show(path)}: is not a regular file`, options);
    case 'EACCES':
    case 'EPERM':
      return new ReindeerError(
        'forbidden',
        `${show(path)}: permission denied; change the file's mode with a command (chmod u+rw)`,
        options,
      );
    case 'EROFS':
      return new ReindeerError('forbidden', `${show(path)}: read-only`, options);
    case 'EEXIST':
    case 'ENOTEMPTY':
      return new ReindeerError('conflict', `${show(path)}: exists already`, options);
    case 'ENOSPC':
    case 'EDQUOT':
      return new ReindeerError('over_capacity', `${show(path)}: no space is left on the disk`, {
        ...options,
        retryable: true,
      });
    case 'EMFILE':
    case 'ENFILE':
      return new ReindeerError('over_capacity', `${show(path)}: too many files are open; try again`, {
        ...options,
        retryable: true,
      });
    case 'ENAMETOOLONG':
      return new ReindeerError('path_refused', `${show(path)}: the name is too long`, options);
    default:
      return new ReindeerError(
        'internal',
        `${show(path)}: the file system failed${code === undefined ? '' : ` (${code})`}`,
        options,
      );
  }
}
