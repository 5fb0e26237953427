import type { Answer, Piece } from './pieces.ts';

/** One provider's wire format for one answer. `open`, `piece` and `close` are called in this order and return server-sent events. */
export interface Encoder {
  open(): string;
  piece(piece: Piece): string;
  close(): string;
  /** An error inside a stream that began well. */
  errorEvent(message: string): string;
  /** The answer as one body. */
  whole(): unknown;
}

export interface EncoderInput {
  readonly answer: Answer;
  readonly model: string;
  /** Wall-clock milliseconds. */
  readonly now: number;
}
