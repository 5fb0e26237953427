/**
 * SSE event ids. A fact's frame is `<epoch>-<seq>`; a token frame between two facts is `<epoch>-<seq>.<n>`, where `seq` is the
 * last fact before it. The epoch changes when sequence numbers may have been reused: another database, a restored
 * backup, a power cut (D3). It never changes at an ordinary restart or kill.
 */
export interface Cursor {
  readonly epoch: string;
  readonly seq: number;
  /** Number of the token frame after `seq`; 0 = the fact itself. */
  readonly frame: number;
}

const PATTERN = /^([a-z0-9]{1,16})-(\d{1,15})(?:\.(\d{1,9}))?$/;

export function formatCursor(cursor: Cursor): string {
  return cursor.frame === 0 ? `${cursor.epoch}-${cursor.seq}` : `${cursor.epoch}-${cursor.seq}.${cursor.frame}`;
}

/** Parses an id of our form; null for anything else. */
export function parseCursor(text: string | null | undefined): Cursor | null {
  const match = PATTERN.exec(text ?? '');
  if (match === null) return null;
  return { epoch: match[1] ?? '', seq: Number(match[2]), frame: Number(match[3] ?? 0) };
}

/** Where a reader begins. */
export type StreamStart =
  /** From the first fact of the run. */
  | { readonly from: 'start' }
  /** After this position. */
  | { readonly from: 'after'; readonly seq: number; readonly frame: number }
  /** The position cannot be honoured: tell the client, and continue from `seq` (facts before it are gone or of another epoch). */
  | { readonly from: 'gap'; readonly reason: 'other_epoch' | 'pruned' };

/**
 * Decides what a `Last-Event-ID` means. Unparsable, unknown and future ids (`-1`, empty, text, beyond the head) mean all
 * facts of the run; a gap is only for an id of another epoch, or one whose successors were pruned.
 */
export function resolveCursor(
  text: string | null | undefined,
  log: {
    readonly epoch: string;
    readonly head: number;
    readonly prunedThrough: number;
    readonly firstSeqOfRun: number;
  },
): StreamStart {
  const cursor = parseCursor(text);
  const fromStart: StreamStart =
    log.firstSeqOfRun <= log.prunedThrough ? { from: 'gap', reason: 'pruned' } : { from: 'start' };
  if (cursor === null) return fromStart;
  if (cursor.epoch !== log.epoch) return { from: 'gap', reason: 'other_epoch' };
  if (cursor.seq > log.head) return fromStart;
  if (cursor.seq < log.prunedThrough) return { from: 'gap', reason: 'pruned' };
  return { from: 'after', seq: cursor.seq, frame: cursor.frame };
}
