import { createHash } from 'node:crypto';
import type { Json, JsonObject } from '@reindeer/protocol';

/** One message of a conversation, the same whichever provider's format it came in. */
export interface ScriptMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  /** All text parts joined; '' when there are none. */
  readonly text: string;
  /** Of an assistant message. `args` is null when the arguments were no JSON object. */
  readonly toolCalls: readonly { readonly id: string; readonly name: string; readonly args: JsonObject | null }[];
  /** Of a tool message: which call it answers. */
  readonly toolCallId: string | null;
  /** Of a tool message: the tool's name, taken from the call it answers when the message itself has none. */
  readonly toolName: string | null;
  /** Of a tool message: did the tool report a failure? */
  readonly failed: boolean;
  /** Of a user message: a person wrote it, as the marks around it say; they are taken off `text`. Notes of the harness have none. */
  readonly written?: boolean;
  /** Reasoning that the assistant message carries back to the provider; null = none. */
  readonly reasoning: string | null;
}

export interface ScriptTool {
  readonly name: string;
  readonly description: string;
  /** JSON schema of the arguments. */
  readonly parameters: JsonObject;
}

/** What a script sees: the whole conversation, so that it needs no memory of its own. */
export interface ScriptRequest {
  /** Who asks, e.g. `lead` or `title`: several callers of one conversation must not share answers. */
  readonly caller: string;
  readonly model: string;
  readonly messages: readonly ScriptMessage[];
  readonly tools: readonly ScriptTool[];
  /** 1 = the first time that this caller sends this conversation; a retry of a failed call gives 2, 3, … */
  readonly attempt: number;
}

export interface ScriptToolCall {
  readonly name: string;
  /** A string is sent as it is, so that malformed JSON can be scripted. */
  readonly args: JsonObject | string;
  /** null = the provider sends no id; undefined = an id that is derived from the conversation. */
  readonly id?: string | null;
}

/** How an answer goes wrong. Counts are in pieces of the answer as it streams. */
export type Fault =
  /** An HTTP error before any answer. `retryAfter` is sent as the `Retry-After` header: seconds, or a date. */
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly retryAfter?: number | string;
      readonly message?: string;
      readonly headers?: Readonly<Record<string, string>>;
    }
  /** The connection is cut after so many pieces. */
  | { readonly kind: 'cut'; readonly afterPieces: number }
  /** The body ends after so many pieces as if it were whole, as proxies in between let it; without pieces it never begins. */
  | { readonly kind: 'quiet-end'; readonly afterPieces: number }
  /** Nothing comes after so many pieces until the client leaves. */
  | { readonly kind: 'hang'; readonly afterPieces: number }
  /** An error object inside a stream that began well. */
  | { readonly kind: 'error-event'; readonly afterPieces: number; readonly message?: string }
  /** Status 200 with an error object instead of an answer. */
  | { readonly kind: 'error-body'; readonly message?: string }
  /** Status 200 with JSON that does not parse. */
  | { readonly kind: 'malformed-body' }
  /** A web page, as a captive portal or a proxy would send. */
  | { readonly kind: 'wrong-content-type' };

/** One answer of the model. A turn without text and calls is the empty reply that providers sometimes send. */
export interface Turn {
  readonly text?: string;
  readonly reasoning?: string;
  readonly toolCalls?: readonly ScriptToolCall[];
  /** null = the provider reports none; undefined = an estimate from the lengths. */
  readonly usage?: { readonly inputTokens: number; readonly outputTokens: number } | null;
  /** Default: `tool_calls` with calls, else `stop`. */
  readonly finish?: 'stop' | 'tool_calls' | 'length' | 'content_filter';
  /** Milliseconds before each piece; default 0. */
  readonly delayMs?: number;
  /** Characters per piece; default 12. */
  readonly pieceSize?: number;
  readonly fault?: Fault;
}

/** A pure function: the same request gives the same turn. */
export type Script = (request: ScriptRequest) => Turn;

/** What a script says when nothing fits. It must be loud: a silent default would hide a wrong conversation. */
export class ScriptMiss extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ScriptMiss';
  }
}

/**
 * A script from a list: the n-th entry answers a conversation that holds n assistant messages. An entry that is itself a list
 * is indexed by the attempt (its last element repeats), which scripts a fault followed by a success.
 * @throws ScriptMiss beyond the end of the list.
 */
export function turns(list: readonly (Turn | readonly Turn[])[]): Script {
  return (request) => {
    const index = request.messages.filter((message) => message.role === 'assistant').length;
    const entry = list[index];
    if (entry === undefined) {
      throw new ScriptMiss(`The script has ${list.length} turns, and turn ${index + 1} was asked for.`);
    }
    if (!isTurnList(entry)) return entry;
    const turn = entry[Math.min(request.attempt, entry.length) - 1];
    if (turn === undefined) throw new ScriptMiss(`Turn ${index + 1} of the script is an empty list.`);
    return turn;
  };
}

function isTurnList(entry: Turn | readonly Turn[]): entry is readonly Turn[] {
  return Array.isArray(entry);
}

/**
 * A script per caller; `fallback` answers the others.
 * @throws ScriptMiss for an unknown caller without a fallback.
 */
export function byCaller(scripts: Readonly<Record<string, Script>>, fallback?: Script): Script {
  return (request) => {
    const script = Object.hasOwn(scripts, request.caller) ? scripts[request.caller] : fallback;
    if (script === undefined) throw new ScriptMiss(`No script for the caller "${request.caller}".`);
    return script(request);
  };
}

const VARIABLE_PARTS: readonly (readonly [RegExp, string])[] = [
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi, '<uuid>'],
  [/\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?/g, '<date>'],
  [/(?:\/private)?\/(?:tmp|var\/folders)\/[^\s"'`)]+/g, '<temporary>'],
];

/**
 * Identity of a conversation: caller and messages without the system prompt, with dates, UUIDs and temporary paths made equal.
 * Call ids are left out, since providers choose them; their pairing shows in the order.
 */
export function conversationKey(request: Pick<ScriptRequest, 'caller' | 'messages'>): string {
  const parts: Json[] = [request.caller];
  for (const message of request.messages) {
    if (message.role === 'system') continue;
    parts.push([
      message.role,
      message.text,
      message.toolCalls.map((call) => [call.name, call.args]),
      message.toolName,
      message.failed,
    ]);
  }
  let text = JSON.stringify(parts);
  for (const [pattern, word] of VARIABLE_PARTS) text = text.replace(pattern, word);
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

/** Counts attempts per conversation; bounded, the longest unused conversation is forgotten first. */
export class AttemptCounter {
  readonly #counts = new Map<string, number>();
  readonly #limit: number;

  constructor(limit = 10_000) {
    this.#limit = limit;
  }

  next(key: string): number {
    const count = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.delete(key);
    this.#counts.set(key, count);
    if (this.#counts.size > this.#limit) {
      const oldest = this.#counts.keys().next();
      if (!oldest.done) this.#counts.delete(oldest.value);
    }
    return count;
  }
}

/** How the harness marks what a person wrote. A script reads the words alone; the journal keeps the request as it came. */
const MARKED = /--- BEGIN USER INPUT ---\n([\s\S]*?)\n--- END USER INPUT ---/g;

function unmarked(message: ScriptMessage): ScriptMessage {
  if (!message.text.includes('--- BEGIN USER INPUT ---')) return message;
  const text = message.text.replace(MARKED, (_, words: string) => words);
  return text === message.text ? message : { ...message, text, written: true };
}

/** Gives tool messages the name of the call that they answer, and takes the marks off what people wrote. */
export function nameToolResults(messages: readonly ScriptMessage[]): ScriptMessage[] {
  const names = new Map<string, string>();
  return messages.map((given) => {
    const message = given.role === 'user' ? unmarked(given) : given;
    for (const call of message.toolCalls) names.set(call.id, call.name);
    if (message.role !== 'tool' || message.toolName !== null) return message;
    return { ...message, toolName: names.get(message.toolCallId ?? '') ?? null };
  });
}
