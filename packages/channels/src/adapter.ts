import type { ChannelFile, ChannelMessage } from '@reindeer/protocol';

/** Where an answer goes. */
export interface Target {
  readonly chatId: string;
  readonly group: boolean;
  /** The message that is answered; null = none is named. */
  readonly answerTo: string | null;
}

/** A file that goes out. `open` begins from its start each time. */
export interface OutgoingFile {
  readonly name: string;
  readonly size: number;
  open(): Promise<AsyncIterable<Uint8Array>>;
}

/** Keeps messages. Only when it has resolved may the provider forget them; what it delivers again is known by its id. None = it listens and works. */
export type Sink = (messages: readonly ChannelMessage[]) => Promise<void>;

/** One bot at one provider. Every call ends when its signal fires, and rejects with a `ChannelError` when the provider fails. */
export interface ChannelAdapter {
  /** UTF-16 units of one message. */
  readonly textLimit: number;
  /** Bytes of a file that can be fetched. */
  readonly inboundLimit: number;
  /** Milliseconds between two edits of one message, at least. */
  editGapMs(group: boolean): number;
  /** Who the bot is. */
  identify(signal: AbortSignal): Promise<{ readonly accountId: string; readonly username: string | null }>;
  /** Hands over what the provider still has and what comes, until the signal fires. */
  listen(sink: Sink, signal: AbortSignal): Promise<void>;
  /** Answers the id of the new message. */
  send(target: Target, text: string, signal: AbortSignal): Promise<string>;
  /** `gone`: there is no such message to write into any more. The same text again is no error. */
  edit(target: Target, messageId: string, text: string, signal: AbortSignal): Promise<'edited' | 'gone'>;
  /** `too_large`: the provider takes no file of this size. */
  sendFile(target: Target, file: OutgoingFile, signal: AbortSignal): Promise<'sent' | 'too_large'>;
  fetch(file: ChannelFile, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
}

export type ChannelFailure =
  /** It did not answer, or not as it should: a later try may succeed. */
  | 'unreachable'
  /** It wants to be asked later. */
  | 'limited'
  /** The credentials are wrong. */
  | 'unauthorized'
  /** Another program listens with the same credentials. */
  | 'taken'
  /** It will not do that, however often it is asked. */
  | 'refused';

/** What a provider failed with. The message holds no address and no token. */
export class ChannelError extends Error {
  readonly failure: ChannelFailure;
  readonly retryAfterMs: number | null;

  constructor(failure: ChannelFailure, message: string, retryAfterMs: number | null = null) {
    super(message);
    this.name = 'ChannelError';
    this.failure = failure;
    this.retryAfterMs = retryAfterMs;
  }
}
