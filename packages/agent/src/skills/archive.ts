import { promisify } from 'node:util';
import { ReindeerError } from '@reindeer/protocol';
import yauzl, { type Entry, type ZipFile } from 'yauzl';
import { MAX_BYTES, MAX_ENTRIES } from './walk.ts';

export interface PackageFile {
  /** Below the skill's folder. */
  readonly path: string;
  readonly bytes: Uint8Array;
  readonly executable: boolean;
}

export interface SkillPackage {
  readonly files: readonly PackageFile[];
}

/** Largest archive that is opened, in bytes. It is held in memory, as are its files. */
export const MAX_ARCHIVE = 64 * 1024 * 1024;
/** Uncompressed, of all files: what fits in memory beside everything else. */
const MAX_UNPACKED = Math.min(MAX_BYTES, 256 * 1024 * 1024);
const TYPE = 0o170000;
const LINK = 0o120000;
const FILE = 0o100000;
const FOLDER = 0o040000;

const open = promisify((bytes: Buffer, done: (error: Error | null, file?: ZipFile) => void) =>
  yauzl.fromBuffer(
    bytes,
    { lazyEntries: true, decodeStrings: true, validateEntrySizes: true, strictFileNames: true },
    (error, file) => done(error, file),
  ),
) as (bytes: Buffer) => Promise<ZipFile>;

/**
 * Reads a `.skill` archive (SK-5): a zip with exactly one folder that holds a `SKILL.md`. Nothing is written anywhere. Hidden files and what macOS
 * adds are left out, links are skipped; everything else that is odd refuses the whole archive.
 *
 * @throws ReindeerError `validation_failed` that names the entry, `too_large`
 */
export async function readPackage(bytes: Uint8Array): Promise<SkillPackage> {
  if (bytes.length > MAX_ARCHIVE)
    throw new ReindeerError('too_large', `The archive has more than ${MAX_ARCHIVE / 1024 / 1024} MiB.`);
  let archive: ZipFile;
  try {
    archive = await open(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  } catch (cause) {
    throw refuse('it is no zip archive, or a damaged one', cause);
  }
  try {
    return packageOf(await filesOf(archive));
  } finally {
    archive.close();
  }
}

/**
 * One file of an archive, for a look inside (FILE-3c). The folder that everything lies in may be left out of the path.
 *
 * @returns null when there is no such file
 * @throws ReindeerError `too_large` past `maxBytes`, `validation_failed` for what is no archive
 */
export async function readMember(bytes: Uint8Array, path: string, maxBytes: number): Promise<Uint8Array | null> {
  if (bytes.length > MAX_ARCHIVE)
    throw new ReindeerError('too_large', `The archive has more than ${MAX_ARCHIVE / 1024 / 1024} MiB.`);
  let archive: ZipFile;
  try {
    archive = await open(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  } catch (cause) {
    throw refuse('it is no zip archive, or a damaged one', cause);
  }
  try {
    let inside: Entry | null = null;
    let count = 0;
    for await (const entry of entriesOf(archive)) {
      count += 1;
      if (count > MAX_ENTRIES) break;
      const kind = (entry.externalFileAttributes >>> 16) & 0xffff & TYPE;
      if (entry.fileName.endsWith('/') || (kind !== 0 && kind !== FILE) || (entry.generalPurposeBitFlag & 1) !== 0)
        continue;
      if (entry.fileName === path) {
        inside = entry;
        break;
      }
      if (inside === null && entry.fileName.replace(/^[^/]+\//, '') === path) inside = entry;
    }
    if (inside === null) return null;
    if (inside.uncompressedSize > maxBytes)
      throw new ReindeerError('too_large', `${shown(inside.fileName)} has more than ${maxBytes} bytes.`);
    return await contentOf(archive, inside);
  } finally {
    archive.close();
  }
}

async function filesOf(archive: ZipFile): Promise<Map<string, PackageFile>> {
  // The numbers of an archive's own list may lie; entries are counted as they come.
  if (archive.entryCount > MAX_ENTRIES)
    throw new ReindeerError('too_large', `The archive has more than ${MAX_ENTRIES} entries.`);
  const files = new Map<string, PackageFile>();
  const seen = new Set<string>();
  let total = 0;
  let count = 0;
  for await (const entry of entriesOf(archive)) {
    count += 1;
    if (count > MAX_ENTRIES) throw new ReindeerError('too_large', `The archive has more than ${MAX_ENTRIES} entries.`);
    const name = entry.fileName;
    checkName(name);
    const mode = (entry.externalFileAttributes >>> 16) & 0xffff;
    const kind = mode & TYPE;
    if (kind === LINK) continue;
    if (kind !== 0 && kind !== FILE && kind !== FOLDER) throw refuse(`${shown(name)} is neither a file nor a folder`);
    if ((entry.generalPurposeBitFlag & 1) !== 0) throw refuse(`${shown(name)} is encrypted`);
    const path = name.replace(/\/+$/, '');
    // Two names that differ in case are one on many machines.
    if (seen.has(path.toLowerCase())) throw refuse(`${shown(name)} is in it twice`);
    seen.add(path.toLowerCase());
    if (name.endsWith('/') || path.split('/').some((part) => part.startsWith('.') || part === '__MACOSX')) continue;
    total += entry.uncompressedSize;
    if (total > MAX_UNPACKED)
      throw new ReindeerError('too_large', `The archive unpacks to more than ${MAX_UNPACKED / 1024 / 1024} MiB.`);
    const bytes = await contentOf(archive, entry);
    const program = programKind(bytes);
    if (program !== null) throw refuse(`${shown(name)} is a program (${program}); a skill may bring scripts only`);
    files.set(path, { path, bytes, executable: (mode & 0o111) !== 0 });
  }
  return files;
}

async function* entriesOf(archive: ZipFile): AsyncGenerator<Entry> {
  for (;;) {
    const entry = await new Promise<Entry | null>((resolve, reject) => {
      const forget = (): void => {
        archive.removeListener('entry', onEntry);
        archive.removeListener('end', onEnd);
        archive.removeListener('error', onError);
      };
      const onEntry = (found: Entry): void => {
        forget();
        resolve(found);
      };
      const onEnd = (): void => {
        forget();
        resolve(null);
      };
      const onError = (cause: Error): void => {
        forget();
        reject(refuse('it is damaged, or a name in it leads outside of it', cause));
      };
      archive.once('entry', onEntry);
      archive.once('end', onEnd);
      archive.once('error', onError);
      archive.readEntry();
    });
    if (entry === null) return;
    yield entry;
  }
}

function contentOf(archive: ZipFile, entry: Entry): Promise<Buffer> {
  return new Promise<Buffer>((resolve, reject) => {
    const fail = (cause: unknown): void => reject(refuse(`${shown(entry.fileName)} cannot be unpacked`, cause));
    archive.openReadStream(entry, (error, stream) => {
      if (error !== null || stream === undefined) return fail(error);
      const chunks: Buffer[] = [];
      // More than the list says is an error of the reader's own (a bomb), less as well.
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.once('end', () => resolve(Buffer.concat(chunks)));
      stream.once('error', fail);
    });
  });
}

function checkName(name: string): void {
  const odd = [...name].some((character) => character < ' ' || character === '\u007f');
  if (name === '' || odd || name.length > 1_000)
    throw refuse('a name in it holds control characters, or is empty or too long');
  if (name.includes('\\') || name.includes(':')) throw refuse(`the name ${shown(name)} holds a backslash or colon`);
  const parts = name.replace(/\/$/, '').split('/');
  if (name.startsWith('/') || parts.some((part) => part === '..' || part === '.' || part === ''))
    throw refuse(`the name ${shown(name)} leads outside of the archive`);
}

function packageOf(files: ReadonlyMap<string, PackageFile>): SkillPackage {
  const heads = [...files.keys()].filter((path) => path === 'SKILL.md' || path.endsWith('/SKILL.md'));
  const [head] = heads;
  if (head === undefined) throw refuse('it holds no SKILL.md');
  if (heads.length > 1) throw refuse(`it holds more than one SKILL.md: ${heads.slice(0, 3).map(shown).join(', ')}`);
  const folders = new Set([...files.keys()].map((path) => path.split('/')[0]));
  if (folders.size !== 1 || head.split('/').length !== 2)
    throw refuse('it must hold exactly one folder, with SKILL.md directly in it');
  const [folder = ''] = folders;
  return { files: [...files.values()].map((file) => ({ ...file, path: file.path.slice(folder.length + 1) })) };
}

/** What the first bytes say; null for everything that is no machine's program. */
export function programKind(bytes: Uint8Array): string | null {
  const [a = 0, b = 0, c = 0, d = 0] = bytes;
  if (a === 0x7f && b === 0x45 && c === 0x4c && d === 0x46) return 'ELF';
  if (a === 0x4d && b === 0x5a) return 'Windows';
  const word = ((a << 24) | (b << 16) | (c << 8) | d) >>> 0;
  return [0xfeedface, 0xfeedfacf, 0xcefaedfe, 0xcffaedfe, 0xcafebabe, 0xbebafeca].includes(word)
    ? 'Mach-O or Java'
    : null;
}

const shown = (name: string): string =>
  `"${[...name]
    .map((character) => (character < ' ' ? '?' : character))
    .join('')
    .slice(0, 120)}"`;
const refuse = (why: string, cause?: unknown): ReindeerError =>
  new ReindeerError('validation_failed', `The archive was refused: ${why}.`, { cause });
