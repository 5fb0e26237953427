import type { JsonObject } from '@reindeer/protocol';

/** One request that the provider received. */
export interface JournalEntry {
  /** 1, 2, 3, … in order of arrival. */
  readonly number: number;
  readonly api: 'openai' | 'anthropic';
  readonly caller: string;
  readonly attempt: number;
  /** The body as it came. */
  readonly body: JsonObject;
  /** HTTP status of the answer; null until it is known. */
  readonly status: number | null;
  /** Why the request was refused; null = it was valid. */
  readonly refused: string | null;
  /** Pieces of the answer that were sent. */
  readonly sent: number;
  /** The client closed the connection before the answer was complete. */
  readonly clientLeft: boolean;
  /** Nothing more will be sent. */
  readonly done: boolean;
}

type Draft = { -readonly [Key in keyof JournalEntry]: JournalEntry[Key] };
interface Waiter {
  readonly matches: (entry: JournalEntry) => boolean;
  readonly resolve: (entry: JournalEntry) => void;
  readonly reject: (error: Error) => void;
}

/** Requests in order, bounded by number and size (the oldest go first), with a way to wait for what a test expects. */
export class Journal {
  readonly #entries: { readonly entry: Draft; readonly bytes: number }[] = [];
  readonly #waiters = new Set<Waiter>();
  readonly #limits: { readonly entries: number; readonly bytes: number; readonly waiters: number };
  #bytes = 0;
  #count = 0;
  #closed = false;

  constructor(limits = { entries: 1_000, bytes: 64 * 1024 * 1024, waiters: 1_000 }) {
    this.#limits = limits;
  }

  entries(): readonly JournalEntry[] {
    return this.#entries.map(({ entry }) => ({ ...entry }));
  }

  add(input: Pick<JournalEntry, 'api' | 'caller' | 'attempt' | 'body' | 'refused'>, bytes: number): Draft {
    this.#count += 1;
    const entry: Draft = { ...input, number: this.#count, status: null, sent: 0, clientLeft: false, done: false };
    this.#entries.push({ entry, bytes });
    this.#bytes += bytes;
    while (
      this.#entries.length > this.#limits.entries ||
      (this.#bytes > this.#limits.bytes && this.#entries.length > 1)
    ) {
      this.#bytes -= this.#entries.shift()?.bytes ?? 0;
    }
    this.changed(entry);
    return entry;
  }

  /** Tells the waiters that this entry is different now. */
  changed(entry: JournalEntry): void {
    for (const waiter of this.#waiters) {
      if (!waiter.matches(entry)) continue;
      this.#waiters.delete(waiter);
      waiter.resolve({ ...entry });
    }
  }

  /** Resolves with the first entry, past or future, that matches. Rejects when the provider closes. */
  waitFor(matches: (entry: JournalEntry) => boolean): Promise<JournalEntry> {
    const found = this.#entries.find(({ entry }) => matches(entry));
    if (found !== undefined) return Promise.resolve({ ...found.entry });
    if (this.#closed) return Promise.reject(new Error('The scripted provider is closed.'));
    if (this.#waiters.size >= this.#limits.waiters)
      return Promise.reject(new Error('Too many wait for the scripted provider.'));
    return new Promise((resolve, reject) => {
      this.#waiters.add({ matches, resolve, reject });
    });
  }

  close(): void {
    this.#closed = true;
    for (const waiter of this.#waiters)
      waiter.reject(new Error('The scripted provider was closed while somebody waited for a request.'));
    this.#waiters.clear();
  }
}
