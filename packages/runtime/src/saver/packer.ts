import { hash as digest } from 'node:crypto';
import { load } from '@langchain/core/load';
import type { BaseMessage } from '@langchain/core/messages';
import { type Packed, type PackedMessage, ReindeerError, type WireMessage } from '@reindeer/protocol';
import { type DecodeOptions, decodeLater, decodeValue } from './decode.ts';
import { type EncodeOptions, encodeValue } from './encode.ts';
import { isSerialized, messageBody, reviveMessage } from './message-body.ts';

/** What is remembered of a message object. Valid as long as the object still holds the same parts. */
export interface Known {
  /** Content address: base64url of the first 16 bytes of SHA-256 of the body. */
  readonly hash: string;
  readonly id: string | null;
  /** The body until it has been handed out once. */
  body: string | null;
  readonly parts: readonly unknown[];
}

/**
 * Turns values with LangChain messages into `Packed` and back, for one thread.
 *
 * A message object that was seen before is neither serialized nor hashed again: it is recognised by identity and by the identity
 * of its parts, so replacing `content` is noticed, and so is a reducer that gives it an id. (Changing the inside of a part in
 * place is not; neither LangGraph nor our middleware does that.) `stored` holds the addresses that the thread's store has,
 * so that their bodies need not travel again; it grows by one short text per message and lives as long as the attempt.
 */
export class Packer {
  readonly #known = new WeakMap<object, Known>();
  readonly #stored = new Set<string>();

  /** Everything that is remembered of a message, computed if need be. */
  known(message: BaseMessage): Known {
    const before = this.#known.get(message);
    if (before !== undefined && isSame(before, message)) return before;
    const body = messageBody(message);
    const known: Known = { hash: addressOf(body), id: message.id ?? null, body, parts: partsOf(message) };
    this.#known.set(message, known);
    return known;
  }

  /** Packs a value with the bodies of all its messages. */
  pack(value: unknown): Packed {
    return this.#pack(value, false);
  }

  /**
   * Packs a value with the bodies of those messages only that the store of this thread does not have yet, and counts them as stored
   * from now on. For stores that say `incremental`; a store that misses one answers `incomplete`.
   */
  packNew(value: unknown): Packed {
    return this.#pack(value, true);
  }

  /** Notes that the store of this thread has these messages. */
  markStored(messages: readonly PackedMessage[]): void {
    for (const { hash } of messages) this.#stored.add(hash);
  }

  /** The wire form of a value; messages stand as `{"$m": hash}`. */
  wire(value: unknown): ReturnType<typeof encodeValue> {
    return encodeValue(value, { form: 'wire', message: (message) => ({ $m: this.known(message).hash }) });
  }

  /**
   * Makes live objects of a packed value.
   * @throws ReindeerError `validation_failed` for classes that only LangChain's asynchronous loader knows (never a message of
   *   LangChain itself), `internal` when a body is missing.
   */
  unpack(packed: Packed): unknown {
    const bodies = new Map(packed.messages.map((message) => [message.hash, message]));
    return decodeValue(JSON.parse(packed.json), this.#decoding(bodies, new Map()));
  }

  /** Makes live objects of several JSON texts that share messages; each message becomes one object. */
  async unpackAll(
    texts: readonly string[],
    messages: readonly PackedMessage[],
    areStored: boolean,
  ): Promise<unknown[]> {
    const bodies = new Map(messages.map((message) => [message.hash, message]));
    const live = new Map<string, object>();
    if (areStored) this.markStored(messages);
    await this.#loadRareClasses(messages, live);
    const options = this.#decoding(bodies, live);
    return Promise.all(texts.map((text) => decodeLater(JSON.parse(text), options)));
  }

  #pack(value: unknown, onlyNew: boolean): Packed {
    const messages = new Map<string, PackedMessage>();
    const options: EncodeOptions = {
      form: 'stored',
      message: (message) => {
        const known = this.known(message);
        if (!messages.has(known.hash) && !(onlyNew && this.#stored.has(known.hash))) {
          messages.set(known.hash, { hash: known.hash, id: known.id, body: known.body ?? messageBody(message) });
          known.body = null;
          if (onlyNew) this.#stored.add(known.hash);
        }
        return { $m: known.hash };
      },
    };
    const json = JSON.stringify(encodeValue(value, options));
    return { json, messages: [...messages.values()] };
  }

  #decoding(bodies: ReadonlyMap<string, PackedMessage>, live: Map<string, object>): DecodeOptions {
    const message = (hash: string): object => {
      const made = live.get(hash);
      if (made !== undefined) return made;
      const stored = bodies.get(hash);
      if (stored === undefined) {
        throw new ReindeerError(
          'internal',
          `A stored message (${hash}) is missing; the store lost a body that it mentions.`,
        );
      }
      const revived = reviveMessage(decodeValue(JSON.parse(stored.body), options) as WireMessage);
      if (revived === null) {
        throw new ReindeerError('validation_failed', 'A stored message is of a class that LangChain does not know.');
      }
      this.#remember(revived, hash);
      live.set(hash, revived);
      return revived;
    };
    const options: DecodeOptions = { message };
    return options;
  }

  #remember(message: BaseMessage, hash: string): void {
    this.#known.set(message, { hash, id: message.id ?? null, body: null, parts: partsOf(message) });
  }

  /** Messages of classes that only LangChain's asynchronous loader can make. */
  async #loadRareClasses(messages: readonly PackedMessage[], live: Map<string, object>): Promise<void> {
    for (const { hash, body } of messages) {
      if (!body.startsWith('{"lc":1')) continue;
      const tree: unknown = JSON.parse(body);
      if (!isSerialized(tree) || reviveMessage(tree) !== null) continue;
      const loaded = await load<BaseMessage>(body);
      this.#remember(loaded, hash);
      live.set(hash, loaded);
    }
  }
}

/** Content address of a body. */
export function addressOf(body: string): string {
  return digest('sha256', body, 'buffer').toString('base64url', 0, 16);
}

type Fields = BaseMessage & {
  readonly tool_calls?: unknown;
  readonly tool_call_chunks?: unknown;
  readonly artifact?: unknown;
  readonly status?: unknown;
  readonly usage_metadata?: unknown;
};

/** The parts whose replacement makes a message another one. A chunk computes its tool calls lazily; its chunks stand for them. */
function partsOf(message: BaseMessage): readonly unknown[] {
  const fields = message as Fields;
  return [
    message.id,
    message.content,
    message.name,
    fields.tool_call_chunks ?? fields.tool_calls,
    message.additional_kwargs,
    message.response_metadata,
    fields.artifact,
    fields.status,
    fields.usage_metadata,
  ];
}

/** Does the object still hold the parts that were remembered? */
function isSame(known: Known, message: BaseMessage): boolean {
  const now = partsOf(message);
  return known.parts.every((part, index) => part === now[index]);
}

/**
 * As `isSame`, for a message of a history that was looked at one step ago: asks only for what is known to be replaced in place
 * (ids by reducers, content and tool calls by middleware). Runs once per message and step.
 */
export function seemsSame(known: Known, message: BaseMessage): boolean {
  const { parts } = known;
  return (
    parts[0] === message.id &&
    parts[1] === message.content &&
    parts[3] === ((message as Fields).tool_call_chunks ?? (message as Fields).tool_calls)
  );
}
