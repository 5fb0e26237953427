import type { Rest } from '../api/rest.ts';
import { isDictionary, listOf, textOr } from './wire.ts';

/** What the log knows of a message beside its text. */
export interface MessageFacts {
  readonly runId: string;
  /** What the user thinks of the answer. */
  readonly rating: 1 | -1 | null;
}

/**
 * Which run a message belongs to, and what the user thought of it. It is read when somebody asks, one page of the newest messages at a
 * time, and kept until something new is there.
 */
export class TurnFacts {
  readonly #rest: Rest;
  readonly #page: string;
  readonly #runs: string;
  #known: Promise<ReadonlyMap<string, MessageFacts>> | null = null;

  constructor(rest: Rest, threadId: string) {
    this.#rest = rest;
    const thread = `/threads/${encodeURIComponent(threadId)}`;
    this.#page = `${thread}/messages/page?limit=200`;
    this.#runs = `${thread}/runs?limit=1000&select=run_id`;
  }

  /** null = the log does not know the message (yet). */
  async of(messageId: string): Promise<MessageFacts | null> {
    const had = this.#known !== null;
    const found = (await this.#read()).get(messageId) ?? null;
    if (found !== null || !had) return found;
    this.forget();
    return (await this.#read()).get(messageId) ?? null;
  }

  forget(): void {
    this.#known = null;
  }

  #read(): Promise<ReadonlyMap<string, MessageFacts>> {
    if (this.#known !== null) return this.#known;
    const reading = Promise.all([this.#rest.get(this.#page), this.#rest.get(this.#runs)]).then(([page, runs]) =>
      readFacts(page, runs),
    );
    this.#known = reading;
    reading.catch(() => {
      if (this.#known === reading) this.#known = null;
    });
    return reading;
  }
}

/** In a branch the messages name runs of the chat that it came from: of these nothing can be asked here. */
export function readFacts(page: unknown, runs: unknown): ReadonlyMap<string, MessageFacts> {
  const own = new Set(listOf(runs).map((run) => (isDictionary(run) ? run.run_id : null)));
  const facts = new Map<string, MessageFacts>();
  for (const row of listOf(isDictionary(page) ? page.data : null)) {
    if (!isDictionary(row) || !isDictionary(row.content)) continue;
    const id = textOr(row.content.id, '');
    const runId = textOr(row.run_id, '');
    const rating = isDictionary(row.feedback) ? row.feedback.rating : null;
    if (id !== '' && own.has(runId)) facts.set(id, { runId, rating: rating === 1 || rating === -1 ? rating : null });
  }
  return facts;
}
