import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import yauzl, { type Entry, type ZipFile } from 'yauzl';

/** What an archive may cost; reading more than that throws `ZipTooLarge`. */
export interface ZipBounds {
  /** Entries that are looked at. */
  readonly entries: number;
  /** Unpacked bytes of everything that is read, together. */
  readonly bytes: number;
  /** Are names with backslashes an error? Office programs write some. */
  readonly strictNames?: boolean;
}

/** The archive holds more than its reader takes. */
export class ZipTooLarge extends Error {
  readonly what: 'entries' | 'bytes';

  constructor(what: 'entries' | 'bytes', limit: number) {
    super(`it unpacks to more than ${limit} ${what}`);
    this.what = what;
  }
}

export interface ZipEntry {
  readonly entry: Entry;
  /** Its bytes, unpacked. */
  content(): Promise<Buffer>;
}

const open = promisify((bytes: Buffer, strict: boolean, done: (error: Error | null, file?: ZipFile) => void) =>
  yauzl.fromBuffer(
    bytes,
    { lazyEntries: true, decodeStrings: true, validateEntrySizes: true, strictFileNames: strict },
    (error, file) => done(error, file),
  ),
) as (bytes: Buffer, strict: boolean) => Promise<ZipFile>;

/**
 * The entries of a zip archive one after another; each may be read while it is the current one. The sizes that an archive claims count against
 * the bounds before anything is unpacked, and an entry that holds more or less than it claims is an error (a bomb).
 *
 * @throws `ZipTooLarge`, and the reader's own error for what is damaged or no archive
 */
export async function* zipEntries(bytes: Uint8Array, bounds: ZipBounds): AsyncGenerator<ZipEntry> {
  const archive = await open(
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    bounds.strictNames ?? false,
  );
  try {
    // The number in an archive's own list may lie; entries are counted as they come.
    if (archive.entryCount > bounds.entries) throw new ZipTooLarge('entries', bounds.entries);
    let count = 0;
    let room = bounds.bytes;
    const content = async (entry: Entry): Promise<Buffer> => {
      room -= entry.uncompressedSize;
      if (room < 0) throw new ZipTooLarge('bytes', bounds.bytes);
      return await collected(await streamOf(archive, entry));
    };
    for (let entry = await nextOf(archive); entry !== null; entry = await nextOf(archive)) {
      const current = entry;
      count += 1;
      if (count > bounds.entries) throw new ZipTooLarge('entries', bounds.entries);
      yield {
        entry: current,
        content: () => content(current),
      };
    }
  } finally {
    archive.close();
  }
}

function nextOf(archive: ZipFile): Promise<Entry | null> {
  return new Promise<Entry | null>((resolve, reject) => {
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
      reject(cause);
    };
    archive.once('entry', onEntry);
    archive.once('end', onEnd);
    archive.once('error', onError);
    archive.readEntry();
  });
}

const streamOf = (archive: ZipFile, entry: Entry): Promise<Readable> =>
  new Promise((resolve, reject) => {
    archive.openReadStream(entry, (error, stream) => {
      if (error !== null || stream === undefined) reject(error ?? new Error('the entry cannot be opened'));
      else resolve(stream);
    });
  });

async function collected(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}
