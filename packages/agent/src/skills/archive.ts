import { ReindeerError } from '@reindeer/protocol';
import { type ZipEntry, ZipTooLarge, zipEntries } from '../documents/zip.ts';
import { MAX_BYTES, MAX_DEPTH, MAX_ENTRIES } from './walk.ts';

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

/**
 * Reads a `.skill` archive (SK-5): a zip with exactly one folder that holds a `SKILL.md`. Nothing is written anywhere. Hidden files and what macOS
 * adds are left out, links are skipped; everything else that is odd refuses the whole archive.
 *
 * @throws ReindeerError `validation_failed` that names the entry, `too_large`
 */
export async function readPackage(bytes: Uint8Array): Promise<SkillPackage> {
  return packageOf(await filesOf(bytes));
}

/**
 * One file of an archive, for a look inside (FILE-3c). The folder that everything lies in may be left out of the path.
 *
 * @returns null when there is no such file
 * @throws ReindeerError `too_large` past `maxBytes`, `validation_failed` for what is no archive
 */
export async function readMember(bytes: Uint8Array, path: string, maxBytes: number): Promise<Uint8Array | null> {
  let found: string | null = null;
  for await (const { entry } of entriesOf(bytes)) {
    if (entry.fileName.endsWith('/') || !isPlain(entry)) continue;
    if (entry.fileName === path) {
      found = path;
      break;
    }
    if (found === null && entry.fileName.replace(/^[^/]+\//, '') === path) found = entry.fileName;
  }
  if (found === null) return null;
  for await (const { entry, content } of entriesOf(bytes)) {
    if (entry.fileName !== found || !isPlain(entry)) continue;
    if (entry.uncompressedSize > maxBytes)
      throw new ReindeerError('too_large', `${shown(found)} has more than ${maxBytes} bytes.`);
    return await unpacked(entry, content);
  }
  return null;
}

const modeOf = (entry: ZipEntry['entry']): number => (entry.externalFileAttributes >>> 16) & 0xffff;
const isEncrypted = (entry: ZipEntry['entry']): boolean => (entry.generalPurposeBitFlag & 1) !== 0;
const isPlain = (entry: ZipEntry['entry']): boolean => [0, FILE].includes(modeOf(entry) & TYPE) && !isEncrypted(entry);

async function filesOf(bytes: Uint8Array): Promise<Map<string, PackageFile>> {
  const files = new Map<string, PackageFile>();
  const seen = new Set<string>();
  const [plain, folders] = [new Set<string>(), new Set<string>()];
  for await (const { entry, content } of entriesOf(bytes)) {
    const name = entry.fileName;
    checkName(name);
    const mode = modeOf(entry);
    const kind = mode & TYPE;
    if (kind === LINK) continue;
    if (kind !== 0 && kind !== FILE && kind !== FOLDER) throw refuse(`${shown(name)} is neither a file nor a folder`);
    if (isEncrypted(entry)) throw refuse(`${shown(name)} is encrypted`);
    const path = name.replace(/\/+$/, '');
    if (seen.has(folded(path))) throw refuse(`${shown(name)} is in it twice`);
    seen.add(folded(path));
    const isFolder = name.endsWith('/');
    for (const folder of foldersOf(folded(isFolder ? `${path}/` : path))) folders.add(folder);
    if (!isFolder) plain.add(folded(path));
    if (name.endsWith('/') || path.split('/').some((part) => part.startsWith('.') || part === '__MACOSX')) continue;
    const data = await unpacked(entry, content);
    const program = programKind(data);
    if (program !== null) throw refuse(`${shown(name)} is a program (${program}); a skill may bring scripts only`);
    files.set(path, { path, bytes: data, executable: (mode & 0o111) !== 0 });
  }
  for (const path of plain) if (folders.has(path)) throw refuse(`${shown(path)} is a file and a folder in it`);
  return files;
}

/** Two names that differ in case, or in how an accent is written, are one on many machines. */
const folded = (path: string): string => path.normalize('NFC').toLowerCase();

/** The folders that a path lies in. */
const foldersOf = (path: string): string[] => [...path.matchAll(/\//g)].map(({ index }) => path.slice(0, index));

/** The entries of an archive of skills within its bounds; what the reader refuses is told as it concerns people. */
async function* entriesOf(bytes: Uint8Array): AsyncGenerator<ZipEntry> {
  if (bytes.length > MAX_ARCHIVE)
    throw new ReindeerError('too_large', `The archive has more than ${MAX_ARCHIVE / 1024 / 1024} MiB.`);
  const entries = zipEntries(bytes, { entries: MAX_ENTRIES, bytes: MAX_UNPACKED, strictNames: true });
  let begun = false;
  try {
    for (;;) {
      const next = await entries.next().catch((cause: unknown) => {
        if (cause instanceof ZipTooLarge) throw tooLarge(cause);
        throw refuse(
          begun ? 'it is damaged, or a name in it leads outside of it' : 'it is no zip archive, or a damaged one',
          cause,
        );
      });
      if (next.done === true) return;
      begun = true;
      yield next.value;
    }
  } finally {
    await entries.return(undefined);
  }
}

async function unpacked(entry: ZipEntry['entry'], content: ZipEntry['content']): Promise<Buffer> {
  try {
    return await content();
  } catch (cause) {
    if (cause instanceof ZipTooLarge) throw tooLarge(cause);
    throw refuse(`${shown(entry.fileName)} cannot be unpacked`, cause);
  }
}

const tooLarge = ({ what }: ZipTooLarge): ReindeerError =>
  new ReindeerError(
    'too_large',
    what === 'entries'
      ? `The archive has more than ${MAX_ENTRIES} entries.`
      : `The archive unpacks to more than ${MAX_UNPACKED / 1024 / 1024} MiB.`,
  );

function checkName(name: string): void {
  const odd = [...name].some((character) => character < ' ' || character === '\u007f');
  if (name === '' || odd || name.length > 1_000)
    throw refuse('a name in it holds control characters, or is empty or too long');
  if (name.includes('\\') || name.includes(':')) throw refuse(`the name ${shown(name)} holds a backslash or colon`);
  const parts = name.replace(/\/$/, '').split('/');
  // The skill's own folder and the file count too.
  if (parts.length > MAX_DEPTH + 2) throw refuse(`the name ${shown(name)} lies in more than ${MAX_DEPTH} folders`);
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
function programKind(bytes: Uint8Array): string | null {
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
