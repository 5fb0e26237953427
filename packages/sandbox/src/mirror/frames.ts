import { ReindeerError } from '@reindeer/protocol';

/**
 * How entries travel: a line of JSON, and behind that of a file its content in pieces, each after its length, ended by a length of 0, or by
 * `VOID` when the content could not be read to its end and counts for nothing.
 */
const VOID = 0xffff_ffff;
const MAX_PIECE = 1024 * 1024;
const MAX_LINE = 64 * 1024;

export function headerFrame(header: unknown): Buffer {
  return Buffer.from(`${JSON.stringify(header)}\n`);
}

/** A file's content as frames. What it meets ends the file, not the stream. */
export async function* contentFrames(content: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  try {
    for await (const piece of content) {
      if (piece.length === 0) continue;
      yield lengthFrame(piece.length);
      yield piece;
    }
  } catch {
    yield lengthFrame(VOID);
    return;
  }
  yield lengthFrame(0);
}

/** Bytes that go over the wire together, about: a small file is a few frames of a few bytes. */
const PACK = 64 * 1024;

/** The same frames, joined until they are worth a write. */
export async function* packed(frames: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const frame of frames) {
    parts.push(frame);
    bytes += frame.length;
    if (bytes < PACK) continue;
    yield Buffer.concat(parts, bytes);
    parts = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(parts, bytes);
}

/** A content that is at hand. */
export async function* piecesOf(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* pieces;
}

function lengthFrame(length: number): Buffer {
  const frame = Buffer.alloc(4);
  frame.writeUInt32BE(length);
  return frame;
}

/** Reads frames from the other side, which may send anything: lines and pieces are bounded, and a cut stream is an error. */
export class FrameReader {
  readonly #source: AsyncIterator<Buffer>;
  #rest: Buffer = Buffer.alloc(0);
  /** Is a content begun and not read to its end? */
  #within = false;
  /** Bytes of its piece that are still to come. */
  #left = 0;

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** The next header; undefined at the end. What is left of the content before it is read over. */
  async header(): Promise<unknown> {
    while (this.#within) await this.#piece().catch(voidAsNull);
    for (;;) {
      const end = this.#rest.indexOf(10);
      if (end >= 0) {
        const line = this.#rest.subarray(0, end).toString('utf8');
        this.#rest = this.#rest.subarray(end + 1);
        try {
          return JSON.parse(line) as unknown;
        } catch {
          throw broken();
        }
      }
      if (this.#rest.length > MAX_LINE) throw broken();
      if (await this.#more()) continue;
      if (this.#rest.length > 0) throw broken();
      return undefined;
    }
  }

  /**
   * The content behind the header of a file, to its end; must be asked for right behind the header, and may be left unread. Rejects with
   * `VoidContent` when the other side could not read it.
   */
  content(): AsyncGenerator<Buffer> {
    this.#within = true;
    return this.#pieces();
  }

  async *#pieces(): AsyncGenerator<Buffer> {
    for (let piece = await this.#piece(); piece !== null; piece = await this.#piece()) yield piece;
  }

  /** The next bytes, as many as are there; null = the content has ended. */
  async #piece(): Promise<Buffer | null> {
    if (!this.#within) return null;
    if (this.#left === 0) {
      const length = (await this.#take(4)).readUInt32BE();
      if (length === 0 || length === VOID) this.#within = false;
      if (length === 0) return null;
      if (length === VOID) throw new VoidContent('The content could not be read.');
      if (length > MAX_PIECE) throw broken();
      this.#left = length;
    }
    if (this.#rest.length === 0 && !(await this.#more())) throw broken();
    const piece = this.#rest.subarray(0, this.#left);
    this.#rest = this.#rest.subarray(piece.length);
    this.#left -= piece.length;
    return piece;
  }

  async #take(bytes: number): Promise<Buffer> {
    while (this.#rest.length < bytes) if (!(await this.#more())) throw broken();
    const taken = this.#rest.subarray(0, bytes);
    this.#rest = this.#rest.subarray(bytes);
    return taken;
  }

  async #more(): Promise<boolean> {
    const { done, value } = await this.#source.next();
    if (done === true) return false;
    this.#rest = this.#rest.length === 0 ? value : Buffer.concat([this.#rest, value]);
    return true;
  }
}

function voidAsNull(error: unknown): null {
  if (error instanceof VoidContent) return null;
  throw error;
}

/** The other side could not read a file to its end; the stream goes on behind it. */
export class VoidContent extends Error {}

function broken(): ReindeerError {
  return new ReindeerError('sandbox_unavailable', 'The transfer of files was cut, or cannot be read.', {
    retryable: true,
  });
}
