import type { Clock, Fact, FactPage, Log } from '@reindeer/protocol';
import type { Bell } from '../common/waiting.ts';

/** Facts kept in memory for readers at the tail; older ones are read from the log. */
const WINDOW = 256;
const PAGE = 200;
const PAGE_BYTES = 4 * 1024 * 1024;

export interface Read {
  readonly facts: readonly Fact[];
  /** The reader knows everything of the run up to this sequence once it has taken `facts`. */
  readonly through: number;
  /** Nothing more stood in the log when it was read. */
  readonly exhausted: boolean;
  /** Grows whenever the log is read at its tail: what was asked of the store then need not be asked again until it does. */
  readonly version: number;
}

/**
 * The facts of one run for all its readers in this process. Readers at the tail share one read of the log and one window in memory; a
 * reader that is behind reads the log itself and slows nobody (RS-21). Hints and polls only mark the window as stale and ring
 * the bell: what a reader gets always comes from the log (RS-11).
 */
export class RunFeed {
  readonly bell: Bell;
  readonly #log: Log;
  readonly #threadId: string;
  readonly #runId: string;
  #window: Fact[] = [];
  /** The window is complete for sequences above `#from`, up to `#to`. */
  #from: number;
  #to: number;
  #hints = 1;
  #seenHints = 0;
  /** The newest of the hints that did not say how far the log reaches. */
  #vague = 1;
  /** How far the log reaches, as hints told. */
  #told = 0;
  #reading: Promise<void> | null = null;
  readers = 0;

  /**
   * @param opening all facts of the run up to its head, as they were read once
   * @param told how far the log is known to reach by now
   */
  constructor(parts: {
    log: Log;
    threadId: string;
    runId: string;
    from: number;
    bell: Bell;
    opening?: FactPage;
    told?: number;
  }) {
    this.#log = parts.log;
    this.#threadId = parts.threadId;
    this.#runId = parts.runId;
    this.#from = parts.from;
    this.#to = parts.from;
    this.bell = parts.bell;
    const { opening, told = 0 } = parts;
    const first = opening?.facts[0]?.seq;
    if (opening === undefined || first === undefined || first <= parts.from) return;
    this.#window = [...opening.facts];
    this.#to = opening.head;
    this.#told = told;
    this.#seenHints = told <= opening.head ? this.#hints : 0;
  }

  /** The log was read up to here. */
  get known(): number {
    return this.#to;
  }

  /** The log may have grown, as far as `head` where that is known. */
  hint(head: number | null = null): void {
    this.#hints += 1;
    if (head === null) this.#vague = this.#hints;
    else this.#told = Math.max(this.#told, head);
    this.bell.ring();
  }

  /**
   * Facts are on their way to a store that carries out calls in their order: they are read right behind their write, so that its hint
   * finds them here. A read that fails is made again by the reader that needs it.
   */
  expect(): void {
    if (this.readers > 0) this.#fetch().catch(() => undefined);
  }

  async after(seq: number): Promise<Read> {
    const known = this.ready(seq);
    if (known !== null) return known;
    if (seq >= this.#from) await this.#fetch();
    return seq < this.#from ? this.#direct(seq) : this.#windowed(seq);
  }

  /** As `after`, when the log need not be asked; null = it must be. */
  ready(seq: number): Read | null {
    if (seq < this.#from) return null;
    const read = this.#windowed(seq);
    return read.facts.length > 0 || read.exhausted ? read : null;
  }

  #windowed(seq: number): Read {
    const facts = this.#slice(seq);
    return {
      facts,
      through: Math.max(this.#to, seq),
      exhausted: facts.length === 0 && this.#seenHints >= this.#hints,
      version: this.#seenHints,
    };
  }

  #slice(seq: number): readonly Fact[] {
    // Readers are at the tail most of the time, so the search begins there.
    let at = this.#window.length;
    while (at > 0 && (this.#window[at - 1]?.seq ?? 0) > seq) at -= 1;
    return this.#window.slice(at);
  }

  async #direct(seq: number): Promise<Read> {
    const page = await this.#read(seq);
    const last = page.facts.at(-1);
    return { facts: page.facts, through: last?.seq ?? page.head, exhausted: false, version: this.#seenHints };
  }

  #fetch(): Promise<void> {
    this.#reading ??= this.#fill().finally(() => {
      this.#reading = null;
    });
    return this.#reading;
  }

  async #fill(): Promise<void> {
    const hints = this.#hints;
    const page = await this.#read(this.#to);
    const last = page.facts.at(-1);
    if (last === undefined || last.seq >= page.head) {
      // Hints that came meanwhile are answered as well, when all of them told of something that is on the page.
      this.#seenHints = this.#vague <= hints && this.#told <= page.head ? this.#hints : hints;
    }
    if (last === undefined) {
      this.#to = Math.max(this.#to, page.head);
      return;
    }
    this.#window.push(...page.facts);
    this.#to = last.seq;
    const surplus = this.#window.length - WINDOW;
    if (surplus > 0) {
      this.#from = this.#window[surplus - 1]?.seq ?? this.#from;
      this.#window = this.#window.slice(surplus);
    }
  }

  #read(afterSeq: number) {
    return this.#log.read({
      threadId: this.#threadId,
      runId: this.#runId,
      afterSeq,
      limit: PAGE,
      maxBytes: PAGE_BYTES,
    });
  }
}

/** Rings a feed at an interval while it has readers: hints may be lost, and runs of other processes give none. */
export async function pollFeed(feed: RunFeed, clock: Clock, everyMs: () => number, signal: AbortSignal): Promise<void> {
  try {
    while (!signal.aborted) {
      await clock.sleep(everyMs(), signal);
      feed.hint();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
