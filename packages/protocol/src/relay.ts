import type { WireMessage } from './facts.ts';
import type { JsonObject } from './json.ts';

/**
 * Where a token frame stands: after fact `seq`, the `n`-th frame of one attempt of the run. Ordered by `seq`, then `n`; a fact
 * itself is `n` = 0. Together with the facts this is one total order, so a reader can name where it was, on any instance.
 */
export interface FramePosition {
  readonly seq: number;
  readonly n: number;
}

export const comparePositions = (a: FramePosition, b: FramePosition): number => a.seq - b.seq || a.n - b.n;

/** Tokens of one message, on their way from the instance that works a run to instances that read it. */
export interface RelayedFrame {
  /** Attempt of the run; what an older one still sends is ignored. */
  readonly attempt: number;
  readonly messageId: string;
  readonly ns: string;
  readonly metadata: JsonObject;
  /** Of the message's first frame. */
  readonly first: FramePosition;
  /** Of the last frame in here. */
  readonly position: FramePosition;
  /** The number that the attempt had given out before this frame, so that a receiver sees what it missed. */
  readonly after: number;
  /** Everything of the message up to here, and nothing of other messages is missing up to `after`. */
  readonly whole: boolean;
  readonly chunks: readonly WireMessage[];
}

/** A run whose tokens an instance reads. `fresh`: it has nothing of them yet, or missed some: what is being written comes whole. */
export interface WantedRun {
  readonly runId: string;
  readonly fresh: boolean;
}

/**
 * Token frames between instances. On demand: nothing is sent for a run that nobody reads elsewhere. Never the record (D3): any frame and
 * any wish may be lost, doubled or late; wishes are repeated while somebody reads, and the next fact brings the whole message. No
 * method waits or throws, and what a slow transport cannot take in time is dropped.
 */
export interface TokenRelay {
  /** Tells the other instances which runs are read here. */
  want(runs: readonly WantedRun[]): void;
  onWanted(listener: (runs: readonly WantedRun[]) => void): () => void;
  /** Sends frames of a run that is worked here; in order. */
  send(runId: string, frames: readonly RelayedFrame[]): void;
  /** Frames of a run that is worked elsewhere, from now on. Returns the end of it. */
  watch(runId: string, listener: (frames: readonly RelayedFrame[]) => void): () => void;
  /** Idempotent; bounded. */
  close(): Promise<void>;
}
