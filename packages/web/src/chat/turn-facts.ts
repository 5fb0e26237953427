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
  #known: Promise<ReadonlyMap<string, MessageFacts>> | null = null;

  constructor(rest: Rest, threadId: string) {
    this.#rest = rest;
    this.#page = `/threads/${encodeURIComponent(threadId)}/messages/page?limit=200`;
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
    const reading = this.#rest.get(this.#page).then(readFacts);
    this.#known = reading;
    reading.catch(() => {
      if (this.#known === reading) this.#known = null;
    });
    return reading;
  }
}

/** In a branch the messages name runs of the chat that it came from: of these nothing can be asked here. */
export function readFacts(page: unknown): ReadonlyMap<string, MessageFacts> {
  const facts = new Map<string, MessageFacts>();
  for (const row of listOf(isDictionary(page) ? page.data : null)) {
    if (!isDictionary(row) || !isDictionary(row.content)) continue;
    const id = textOr(row.content.id, '');
    const runId = textOr(row.run_id, '');
    const rating = isDictionary(row.feedback) ? row.feedback.rating : null;
    if (id !== '' && runId !== '' && row.inherited !== true)
      facts.set(id, { runId, rating: rating === 1 || rating === -1 ? rating : null });
  }
  return facts;
}
