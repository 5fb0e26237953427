import type { Fact, Json, Run, StreamEvent, WireMessage } from '@reindeer/protocol';
import { mergeAll } from './chunks.ts';
import type { TokenFrame } from './frames.ts';

/** Names of modes as asked, without doubles; `messages-tuple` and the older `messages` differ in their events. */
export type Modes = ReadonlySet<string>;

/** An event before it has its id. */
export interface Projected {
  readonly event: string;
  readonly data: string;
}

const named = (mode: string, ns: string): string => (ns === '' ? mode : `${mode}|${ns}`);

/** Texts of facts, shared by all readers of one feed (the fact objects are). */
const texts = new WeakMap<Fact, string>();

/** Texts of messages and chunks, likewise: a message object belongs to one fact or frame of one run. */
const tuples = new WeakMap<WireMessage, string>();

function factText(fact: Fact, make: () => Json): string {
  let text = texts.get(fact);
  if (text === undefined) {
    text = JSON.stringify(make());
    texts.set(fact, text);
  }
  return text;
}

/** Projections of facts that need nothing but the fact: `updates`, `custom`, `debug`, `tasks`, and interrupts. */
export function projectFact(fact: Fact, modes: Modes, subgraphs: boolean): readonly Projected[] {
  const { body } = fact;
  switch (body.kind) {
    case 'update':
      if (!modes.has('updates') || (body.ns !== '' && !subgraphs)) return [];
      return [{ event: named('updates', body.ns), data: factText(fact, () => ({ [body.node]: body.values })) }];
    case 'custom':
      if (!modes.has('custom') || (body.ns !== '' && !subgraphs)) return [];
      return [{ event: named('custom', body.ns), data: factText(fact, () => body.data) }];
    case 'workspace-changes': {
      if (!modes.has('custom')) return [];
      const { summary } = body.changes;
      const data = factText(fact, () => ({ type: 'workspace_changes', run_id: fact.runId, summary }));
      return [{ event: 'custom', data }];
    }
    case 'frame':
      if (!modes.has(body.mode) || (body.ns !== '' && !subgraphs)) return [];
      return [{ event: named(body.mode, body.ns), data: factText(fact, () => body.data) }];
    case 'interrupt': {
      if (body.ns !== '') return [];
      const data = factText(fact, () => ({ __interrupt__: body.interrupts }));
      return ['updates', 'values'].filter((mode) => modes.has(mode)).map((event) => ({ event, data }));
    }
    default:
      return [];
  }
}

/** Names of errors on the wire; the SDK throws an error with `error` as its name. */
const ERROR_NAMES: Readonly<Record<string, string>> = { timeout: 'TimeoutError', error: 'RunError' };

/** What a reader hears at the end: `error` where the run failed, then `end`. */
export function projectEnd(run: {
  readonly runId: string;
  readonly status: string;
  readonly error?: string | null;
}): readonly Projected[] {
  const end: Projected = { event: 'end', data: JSON.stringify({ run_id: run.runId, status: run.status }) };
  const error = ERROR_NAMES[run.status];
  if (error === undefined) return [end];
  const message = run.error ?? 'The run failed.';
  return [{ event: 'error', data: JSON.stringify({ error, name: error, message }) }, end];
}

interface Received {
  /** Whole or to its last token. */
  complete: boolean;
  /** For the older `messages` mode: everything so far, as one message. */
  sofar: WireMessage | null;
  /** Characters of text that went out since its beginning; null = not known, or it is more than text. */
  characters: number | null;
  ns: string;
}

/** What a client has of a message before its fact: nothing, every token of it, or nobody knows what. */
export type Knowledge = 'nothing' | 'all' | 'unknown';

/** Message ids that a reader remembers. */
const REMEMBERED = 10_000;

/**
 * Messages as one reader has received them. The SDK appends what it gets to what it has under the same id, so nothing may be sent twice:
 * a finished message goes out whole only when none of its tokens did, and where it is not known what the client has, a `remove` goes first,
 * on which the client starts that message over.
 */
export class MessageProjection {
  readonly #run: Run;
  readonly #modes: Modes;
  readonly #subgraphs: boolean;
  readonly #received = new Map<string, Received>();

  constructor(run: Run, modes: Modes, subgraphs: boolean) {
    this.#run = run;
    this.#modes = modes;
    this.#subgraphs = subgraphs;
  }

  get wanted(): boolean {
    return this.#modes.has('messages-tuple') || this.#modes.has('messages');
  }

  /** The client has this message already, from an earlier connection. */
  assume(messageId: string): void {
    this.#received.set(messageId, { complete: true, sofar: null, characters: null, ns: '' });
  }

  /** The client has some of this message's tokens; the rest follows. */
  begin(messageId: string): void {
    this.#received.set(messageId, { complete: false, sofar: null, characters: null, ns: '' });
  }

  /** Some tokens of this message went to the client, here or on an earlier connection. */
  begun(messageId: string): boolean {
    return this.#received.has(messageId);
  }

  complete(messageId: string): boolean {
    return this.#received.get(messageId)?.complete === true;
  }

  tokens(frame: TokenFrame, startOver: boolean): readonly Projected[] {
    if (!this.wanted || (frame.ns !== '' && !this.#subgraphs)) return [];
    const known = this.#received.get(frame.messageId);
    if (known?.complete === true) return [];
    const received = known ?? { complete: false, sofar: null, characters: 0, ns: frame.ns };
    received.ns = frame.ns;
    if (startOver) received.characters = 0;
    for (const chunk of frame.chunks) received.characters = plus(received.characters, textLength(chunk));
    this.#remember(frame.messageId, received);
    const events: Projected[] = [];
    if (this.#modes.has('messages-tuple')) {
      if (startOver) events.push(this.#tuple(removal(frame.messageId), frame.ns, {}));
      for (const chunk of frame.chunks) events.push(this.#tuple(chunk, frame.ns, frame.metadata));
    }
    if (this.#modes.has('messages')) {
      if (known === undefined) {
        events.push({
          event: named('messages/metadata', frame.ns),
          data: JSON.stringify({ [frame.messageId]: { metadata: this.#metadata(frame.ns, frame.metadata) } }),
        });
      }
      const before = startOver || received.sofar === null ? [] : [received.sofar];
      // Chunks that cannot be joined with certainty leave the last one standing; the complete message follows.
      received.sofar = mergeAll([...before, ...frame.chunks]).at(-1) ?? null;
      events.push({ event: named('messages/partial', frame.ns), data: JSON.stringify([asWhole(received.sofar)]) });
    }
    return events;
  }

  finished(message: WireMessage, ns: string, has: Knowledge): readonly Projected[] {
    const id = message.id ?? '';
    // What went in is not what came out: LangGraph streams no input either.
    if (!this.wanted || message.type === 'human' || (ns !== '' && !this.#subgraphs)) return [];
    const known = this.#received.get(id);
    this.#remember(id, { complete: true, sofar: null, characters: null, ns });
    if (known?.complete === true) return [];
    const events: Projected[] = [];
    if (this.#modes.has('messages-tuple') && has !== 'all') {
      if (has === 'unknown') events.push(this.#tuple(removal(id), ns, {}));
      events.push(this.#tuple(message, ns, {}));
    }
    if (this.#modes.has('messages')) {
      events.push({ event: named('messages/complete', ns), data: JSON.stringify([message]) });
    }
    return events;
  }

  /** Every token of this message, which is text alone, went to the client: tokens are never sent twice, so their number tells. */
  hasWhole(message: WireMessage): boolean {
    const received = this.#received.get(message.id ?? '')?.characters ?? null;
    const hasCalls = Array.isArray(message.tool_calls) && message.tool_calls.length > 0;
    return received !== null && !hasCalls && textLength(message) === received;
  }

  /** Messages that were begun by an attempt that has ended without finishing them: the client takes them back. */
  abandoned(): readonly Projected[] {
    const events: Projected[] = [];
    for (const [id, { complete, ns }] of [...this.#received]) if (!complete) events.push(...this.removed(id, ns));
    return events;
  }

  removed(messageId: string, ns: string): readonly Projected[] {
    this.#received.delete(messageId);
    if (!this.#modes.has('messages-tuple') || (ns !== '' && !this.#subgraphs)) return [];
    return [this.#tuple(removal(messageId), ns, {})];
  }

  #tuple(message: WireMessage, ns: string, metadata: TokenFrame['metadata']): Projected {
    let data = tuples.get(message);
    if (data === undefined) {
      data = JSON.stringify([message, this.#metadata(ns, metadata)]);
      tuples.set(message, data);
    }
    return { event: named('messages', ns), data };
  }

  #metadata(ns: string, metadata: TokenFrame['metadata']): TokenFrame['metadata'] {
    const { runId, threadId } = this.#run;
    return {
      tags: [],
      ...(ns === '' ? {} : { langgraph_checkpoint_ns: ns }),
      ...metadata,
      run_id: runId,
      thread_id: threadId,
    };
  }

  #remember(messageId: string, received: Received): void {
    this.#received.delete(messageId);
    this.#received.set(messageId, received);
    if (this.#received.size <= REMEMBERED) return;
    const [oldest] = this.#received.keys();
    if (oldest !== undefined) this.#received.delete(oldest);
  }
}

/** Characters of a text; null where there is more than text. */
const textLength = ({ content }: WireMessage): number | null => (typeof content === 'string' ? content.length : null);
const plus = (a: number | null, b: number | null): number | null => (a === null || b === null ? null : a + b);

const removal = (id: string): WireMessage => ({ type: 'remove', id, content: '' });

const asWhole = (message: WireMessage | null): WireMessage | null =>
  message === null ? null : { ...message, type: message.type === 'AIMessageChunk' ? 'ai' : message.type };

export const withId = (projected: Projected, id: string | null): StreamEvent => ({ id, ...projected });
