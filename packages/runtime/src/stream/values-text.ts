import type { CheckpointStore, GraphFactory, LoadedCheckpoint } from '@reindeer/protocol';
import { Packer } from '../saver/index.ts';
import { toWire } from './wire.ts';

const REFERENCE = /\{"\$m":"([A-Za-z0-9_-]+)"\}/g;

/** Channel JSON with its messages in place: spliced as text where that is exact, else through live objects. */
function channelText(json: string, bodies: ReadonlyMap<string, string>, loaded: LoadedCheckpoint): string {
  let plain = !json.includes('"$x"');
  if (plain) {
    const spliced = json.replace(REFERENCE, (whole, hash: string) => {
      const body = bodies.get(hash);
      // A body with special values, or in LangChain's own form, is no wire message as it stands.
      if (body === undefined || body.startsWith('{"lc":1') || body.includes('"$x"')) plain = false;
      return body ?? whole;
    });
    if (plain) return spliced;
  }
  return JSON.stringify(toWire(new Packer().unpack({ json, messages: loaded.messages })));
}

/** The state of a checkpoint as JSON text, in the form that clients see; only the named channels. */
export function valuesText(loaded: LoadedCheckpoint, keys: readonly string[]): string {
  const bodies = new Map(loaded.messages.map((message) => [message.hash, message.body]));
  const wanted = new Set(keys);
  const parts: string[] = [];
  for (const { name, json } of loaded.channels) {
    if (wanted.has(name)) parts.push(`${JSON.stringify(name)}:${channelText(json, bodies, loaded)}`);
  }
  return `{${parts.join(',')}}`;
}

interface Entry {
  readonly text: Promise<string | null>;
  size: number;
}

/**
 * Serialized states for the `values` mode: each checkpoint is loaded and written once, whatever the number of readers. Bounded by
 * characters, least recently used first; a failed load is not kept.
 */
export class ValuesCache {
  readonly #checkpoints: CheckpointStore;
  readonly #limit: number;
  readonly #loadKeys: (factory: GraphFactory, threadId: string) => Promise<readonly string[]>;
  readonly #entries = new Map<string, Entry>();
  readonly #stateKeys = new Map<string, Promise<readonly string[]>>();
  #size = 0;

  constructor(parts: {
    checkpoints: CheckpointStore;
    /** Characters kept. */
    limit: number;
    /** Names of the channels that clients see; asked once per assistant. */
    keysOf: (factory: GraphFactory, threadId: string) => Promise<readonly string[]>;
  }) {
    this.#checkpoints = parts.checkpoints;
    this.#limit = parts.limit;
    this.#loadKeys = parts.keysOf;
  }

  /** Null when the checkpoint is gone. */
  text(threadId: string, checkpointId: string, factory: GraphFactory): Promise<string | null> {
    const key = `${threadId}\n${checkpointId}\n${factory.assistantId}`;
    const known = this.#entries.get(key);
    if (known !== undefined) {
      this.#entries.delete(key);
      this.#entries.set(key, known);
      return known.text;
    }
    const entry: Entry = { text: this.#load(threadId, checkpointId, factory), size: 0 };
    this.#entries.set(key, entry);
    entry.text.then(
      (text) => this.#count(key, entry, text?.length ?? 0),
      () => this.#entries.delete(key),
    );
    return entry.text;
  }

  /** The thread is deleted: nothing of it stays in memory. */
  purge(threadId: string): void {
    for (const [key, { size }] of this.#entries) {
      if (!key.startsWith(`${threadId}\n`)) continue;
      this.#entries.delete(key);
      this.#size -= size;
    }
  }

  get size(): { readonly states: number; readonly characters: number } {
    return { states: this.#entries.size, characters: this.#size };
  }

  async #load(threadId: string, checkpointId: string, factory: GraphFactory): Promise<string | null> {
    const [loaded, keys] = await Promise.all([
      this.#checkpoints.load({ threadId, ns: '', checkpointId }),
      this.#keysOf(factory, threadId),
    ]);
    return loaded === null ? null : valuesText(loaded, keys);
  }

  #keysOf(factory: GraphFactory, threadId: string): Promise<readonly string[]> {
    let keys = this.#stateKeys.get(factory.assistantId);
    if (keys === undefined) {
      keys = this.#loadKeys(factory, threadId);
      keys.catch(() => this.#stateKeys.delete(factory.assistantId));
      this.#stateKeys.set(factory.assistantId, keys);
    }
    return keys;
  }

  #count(key: string, entry: Entry, size: number): void {
    if (this.#entries.get(key) !== entry) return;
    entry.size = size;
    this.#size += size;
    for (const [oldest, { size: freed }] of this.#entries) {
      if (this.#size <= this.#limit || this.#entries.size === 1) return;
      this.#entries.delete(oldest);
      this.#size -= freed;
    }
  }
}
