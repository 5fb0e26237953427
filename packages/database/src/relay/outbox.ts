import type { RelayedFrame, WantedRun } from '@reindeer/protocol';

/** Characters of frames that wait to be sent: of one run, and of all. Past it what waits is dropped, and readers ask for it anew. */
const RUN_CHARACTERS = 1024 * 1024;
const ALL_CHARACTERS = 8 * 1024 * 1024;
/** Wishes that wait to be told. */
const WISHES = 10_000;

interface Waiting {
  texts: string[];
  characters: number;
}

/** What waits to be sent to other instances while something is on its way, within bounds. */
export class Outbox {
  #frames = new Map<string, Waiting>();
  #characters = 0;
  #wishes = new Map<string, boolean>();

  get empty(): boolean {
    return this.#frames.size === 0 && this.#wishes.size === 0;
  }

  want(runs: readonly WantedRun[]): void {
    for (const { runId, fresh } of runs) {
      if (this.#wishes.size >= WISHES && !this.#wishes.has(runId)) return;
      this.#wishes.set(runId, fresh || this.#wishes.get(runId) === true);
    }
  }

  /** Answers false when they were dropped. */
  send(runId: string, frames: readonly RelayedFrame[]): boolean {
    const waiting = this.#frames.get(runId) ?? { texts: [], characters: 0 };
    const texts = frames.map((frame) => JSON.stringify(frame));
    const more = texts.reduce((sum, text) => sum + text.length, 0);
    if (waiting.characters + more > RUN_CHARACTERS || this.#characters + more > ALL_CHARACTERS) {
      this.#characters -= waiting.characters;
      this.#frames.delete(runId);
      return false;
    }
    waiting.texts.push(...texts);
    waiting.characters += more;
    this.#characters += more;
    this.#frames.set(runId, waiting);
    return true;
  }

  /** Takes everything out: by run a JSON list of frames, and the wishes. */
  take(): { readonly frames: readonly (readonly [string, string])[]; readonly wishes: readonly WantedRun[] } {
    const frames = [...this.#frames].map(([runId, { texts }]) => [runId, `[${texts.join(',')}]`] as const);
    const wishes = [...this.#wishes].map(([runId, fresh]) => ({ runId, fresh }));
    this.#frames = new Map();
    this.#wishes = new Map();
    this.#characters = 0;
    return { frames, wishes };
  }
}

/** A list of texts as JSON lists that are each at most `bytes` long; a text that is too long for one is left out. */
export function inPieces(texts: readonly string[], bytes: number): string[] {
  const pieces: string[] = [];
  let piece = '';
  for (const text of texts) {
    const item = JSON.stringify(text);
    if (Buffer.byteLength(item) + 2 > bytes) continue;
    if (Buffer.byteLength(piece) + Buffer.byteLength(item) + 3 > bytes) {
      pieces.push(`[${piece}]`);
      piece = '';
    }
    piece = piece === '' ? item : `${piece},${item}`;
  }
  if (piece !== '') pieces.push(`[${piece}]`);
  return pieces;
}

/** The texts of a piece; nothing when it is not one of ours. */
export function ofPiece(piece: string): string[] {
  try {
    const list: unknown = JSON.parse(piece);
    return Array.isArray(list) ? list.filter((item): item is string => typeof item === 'string') : [];
  } catch {
    return [];
  }
}

/** A wish as a text, and back. */
export const wishText = ({ runId, fresh }: WantedRun): string => `${fresh ? '!' : '.'}${runId}`;
export const wishOf = (text: string): WantedRun => ({ runId: text.slice(1), fresh: text.startsWith('!') });

/** Frames of a text that a peer sent; nothing when it is not one of ours. */
export function framesOf(text: string): readonly RelayedFrame[] {
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) ? list.filter(isFrame) : [];
  } catch {
    return [];
  }
}

const isPosition = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  'seq' in value &&
  Number.isSafeInteger(value.seq) &&
  'n' in value &&
  Number.isSafeInteger(value.n);

function isFrame(value: unknown): value is RelayedFrame {
  if (typeof value !== 'object' || value === null) return false;
  const frame = value as Readonly<Partial<Record<keyof RelayedFrame, unknown>>>;
  return (
    Number.isSafeInteger(frame.attempt) &&
    Number.isSafeInteger(frame.after) &&
    typeof frame.messageId === 'string' &&
    typeof frame.ns === 'string' &&
    typeof frame.whole === 'boolean' &&
    typeof frame.metadata === 'object' &&
    frame.metadata !== null &&
    isPosition(frame.first) &&
    isPosition(frame.position) &&
    Array.isArray(frame.chunks)
  );
}
