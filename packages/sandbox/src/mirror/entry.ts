import type { Stats } from 'node:fs';
import { ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';

/** The folders that are carried, by the first part of every path. */
const MIRRORED = ['workspace', 'outputs', 'uploads', 'skills'] as const;
/** What a sandbox may change; the others are put right again. */
export const WRITABLE: readonly string[] = ['workspace', 'outputs'];

/** Largest file that is carried. */
export const MAX_MIRRORED_BYTES = 100 * 1024 * 1024;
/** Entries of all folders of one thread. */
export const MAX_MIRRORED_ENTRIES = 50_000;
/** Characters of a carried path, and of what a link says. */
export const MAX_PATH = 4_096;
export const MAX_TARGET = 4_096;

export interface MirrorEntry {
  /** `workspace/a/b`. */
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link';
  /** Bytes of a file; else 0. */
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  /** Whole milliseconds; of a file only. */
  readonly modifiedAt: number;
  /** What a link says; it is carried as it is and never followed. */
  readonly target: string;
  /** Differs whenever it was changed, on the side that has made it. */
  readonly stamp: string;
}

export interface MirrorListing {
  readonly entries: ReadonlyMap<string, MirrorEntry>;
  /** What is there and is not carried: special, too large, or of a name that not every system takes. */
  readonly leftOut: ReadonlySet<string>;
  /** False: there is more than was looked at, so that nothing may be called missing. */
  readonly complete: boolean;
}

/** @param byMetadata count a change of the metadata as one: where whoever writes may set times as they like */
function fileStamp(stats: Pick<Stats, 'size' | 'mtimeMs' | 'ctimeMs' | 'ino' | 'mode'>, byMetadata: boolean): string {
  const plain = `f:${stats.size}:${stats.mtimeMs}:${stats.ino}:${stats.mode & 0o777}`;
  return byMetadata ? `${plain}:${stats.ctimeMs}` : plain;
}

/** A file as it travels; null = it is none, or is not carried. @param commands may whoever writes set times as they like, and give several names? */
export function fileEntry(
  path: string,
  stats: Pick<Stats, 'isFile' | 'size' | 'nlink' | 'mtimeMs' | 'ctimeMs' | 'ino' | 'mode'>,
  commands: boolean,
): MirrorEntry | null {
  if (!stats.isFile() || stats.size > MAX_MIRRORED_BYTES || (!commands && stats.nlink > 1)) return null;
  return {
    path,
    kind: 'file',
    size: stats.size,
    mode: stats.mode & 0o777,
    // A command may set times that no system of numbers holds.
    modifiedAt: Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, Math.floor(stats.mtimeMs))),
    target: '',
    stamp: fileStamp(stats, commands),
  };
}

export const directoryStamp = (mode: number): string => `d:${mode & 0o777}`;
export const linkStamp = (target: string): string => `l:${target}`;

/** How a file that is being written is called, beside the one that it becomes. */
export const PART = '.reindeer-part-';

/** Can this name stand on either side, and in a message? */
export function isCarriedName(name: string): boolean {
  if (name.startsWith(PART)) return false;
  if (name === '' || name === '.' || name === '..' || name.includes('/') || name.includes('\ufffd')) return false;
  if (Buffer.byteLength(name) > 255) return false;
  for (let index = 0; index < name.length; index += 1) {
    const code = name.charCodeAt(index);
    if (code < 32 || code === 127) return false;
  }
  return true;
}

/** The names in a path, the folder's first. @throws ReindeerError `path_refused` for one that no side may use */
export function mirrorPath(path: string): readonly string[] {
  const parts = path.split('/');
  const [folder] = parts;
  if (
    path.length <= MAX_PATH &&
    MIRRORED.some((one) => one === folder) &&
    parts.length > 1 &&
    parts.every(isCarriedName)
  )
    return parts;
  throw new ReindeerError('path_refused', 'A path of another side is refused.');
}

/** What the other side says of one entry; every field is checked. @throws ReindeerError `sandbox_unavailable` */
export function checkedEntry(value: unknown): MirrorEntry {
  const path = at(value, 'path');
  const kind = at(value, 'kind');
  const target = at(value, 'target');
  const stamp = at(value, 'stamp');
  const whole = (key: string, most: number): number => {
    const number = at(value, key);
    if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0 && number <= most) return number;
    throw unreadable();
  };
  if (typeof path !== 'string' || typeof target !== 'string' || typeof stamp !== 'string') throw unreadable();
  if (kind !== 'file' && kind !== 'directory' && kind !== 'link') throw unreadable();
  if (target.length > MAX_TARGET || target.includes('\0') || stamp.length > MAX_TARGET + 200) throw unreadable();
  if ((kind === 'link') !== (target !== '')) throw unreadable();
  mirrorPath(path);
  return {
    path,
    kind,
    size: whole('size', MAX_MIRRORED_BYTES),
    mode: whole('mode', 0o777),
    modifiedAt: whole('modifiedAt', Number.MAX_SAFE_INTEGER),
    target,
    stamp,
  };
}

export function unreadable(): ReindeerError {
  return new ReindeerError('sandbox_unavailable', 'The sandbox told of its files in a way that cannot be read.');
}
