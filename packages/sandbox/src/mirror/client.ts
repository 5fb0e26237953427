import type { IncomingMessage } from 'node:http';
import { type Clock, ReindeerError } from '@reindeer/protocol';
import { at } from '../container/listing.ts';
import { jsonAnswer, type ServerCall, type ServerTransport, timeLimit } from '../container/transport.ts';
import {
  checkedEntry,
  MAX_MIRRORED_ENTRIES,
  type MirrorEntry,
  type MirrorListing,
  mirrorPath,
  unreadable,
} from './entry.ts';
import { FrameReader } from './frames.ts';

const LIST_MS = 60_000;
/** A transfer gets this long, and a second more for every mebibyte. */
const TRANSFER_MS = 60_000;
const MIB = 1024 * 1024;
const ANSWER_BYTES = 32 * MIB;

/** The routes by which a sandbox's server exchanges files. Everything is bounded in time and number; a rejection = cannot tell. */
export class MirrorClient {
  readonly #transport: Pick<ServerTransport, 'call'>;
  readonly #clock: Clock;

  constructor(transport: Pick<ServerTransport, 'call'>, clock: Clock) {
    this.#transport = transport;
    this.#clock = clock;
  }

  list(signal?: AbortSignal): Promise<MirrorListing> {
    const call = { method: 'POST', path: '/v1/mirror/list', body: {} } as const;
    return this.#limited(call, LIST_MS, signal, async (response) => {
      const reader = new FrameReader(atMost(response, ANSWER_BYTES));
      const entries = new Map<string, MirrorEntry>();
      const leftOut = new Set<string>();
      for (let line = await reader.header(); line !== undefined; line = await reader.header()) {
        const complete = at(line, 'complete');
        if (typeof complete === 'boolean') return { entries, leftOut, complete };
        if (entries.size + leftOut.size > MAX_MIRRORED_ENTRIES) throw unreadable();
        const without = at(line, 'leftOut');
        if (typeof without === 'string') leftOut.add(without.slice(0, 4_096));
        else {
          const entry = checkedEntry(line);
          entries.set(entry.path, entry);
        }
      }
      // Without its last line it was cut.
      throw unreadable();
    });
  }

  /** @param take is given each entry that was asked for, at most once, with its content */
  read(
    wanted: readonly MirrorEntry[],
    take: (entry: MirrorEntry, content: AsyncIterable<Buffer>) => Promise<void>,
  ): Promise<void> {
    const left = new Set(wanted.map(({ path }) => path));
    const call = { method: 'POST', path: '/v1/mirror/read', body: { paths: [...left] } } as const;
    return this.#limited(call, timeFor(wanted), undefined, async (response) => {
      const reader = new FrameReader(response);
      for (let header = await reader.header(); header !== undefined; header = await reader.header()) {
        const entry = checkedEntry(header);
        if (!left.delete(entry.path)) throw unreadable();
        await take(entry, entry.kind === 'file' ? reader.content() : none());
      }
    });
  }

  /**
   * @param bytes about how many are sent
   * @returns the stamp of each entry that was written; null where something is in its way
   */
  write(
    frames: AsyncIterable<Buffer>,
    bytes: number,
    signal?: AbortSignal,
  ): Promise<ReadonlyMap<string, string | null>> {
    const call = { method: 'POST', path: '/v1/mirror/write', stream: frames } as const;
    const time = TRANSFER_MS + (bytes / MIB) * 1000;
    return this.#limited(call, time, signal, async (response) => {
      const body = at(await jsonAnswer(response, ANSWER_BYTES), 'data');
      const written = at(body, 'written');
      if (!Array.isArray(written) || written.length > MAX_MIRRORED_ENTRIES) throw unreadable();
      return new Map(
        written.map((one: unknown): [string, string | null] => {
          const [path, stamp] = Array.isArray(one) ? (one as unknown[]) : [];
          if (typeof path !== 'string' || !(stamp === null || typeof stamp === 'string')) throw unreadable();
          mirrorPath(path);
          return [path, stamp];
        }),
      );
    });
  }

  async #limited<T>(
    call: Omit<ServerCall, 'signal'>,
    milliseconds: number,
    signal: AbortSignal | undefined,
    body: (response: IncomingMessage) => Promise<T>,
  ): Promise<T> {
    const limit = timeLimit(this.#clock, milliseconds, signal);
    let response: IncomingMessage | null = null;
    try {
      response = await this.#transport.call({ ...call, signal: limit.signal });
      if (response.statusCode === 404)
        throw new ReindeerError(
          'sandbox_unavailable',
          'This sandbox image cannot exchange files (no /v1/mirror). Build it again from images/sandbox, or share the data folder and set sandbox.thread_data_mounts: true.',
        );
      if (response.statusCode !== 200) {
        const refused = await jsonAnswer(response, MIB).catch(() => null);
        const message = at(refused, 'message');
        const why = typeof message === 'string' ? message.slice(0, 300) : `status ${response.statusCode}`;
        throw new ReindeerError('sandbox_unavailable', `The sandbox refused files: ${why}`);
      }
      return await body(response);
    } finally {
      limit.done();
      response?.destroy();
    }
  }
}

function timeFor(entries: readonly MirrorEntry[]): number {
  return TRANSFER_MS + (entries.reduce((sum, { size }) => sum + size, 0) / MIB) * 1000;
}

/** What comes, up to so many bytes: what a sandbox says of its files is kept, and it may be hostile. */
async function* atMost(source: AsyncIterable<Buffer>, bytes: number): AsyncGenerator<Buffer> {
  let left = bytes;
  for await (const part of source) {
    left -= part.length;
    if (left < 0) throw unreadable();
    yield part;
  }
}

async function* none(): AsyncGenerator<Buffer> {}
