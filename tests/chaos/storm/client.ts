import { Client } from '@langchain/langgraph-sdk';
import { say } from '../../support/server.ts';
import type { Seen } from './history.ts';
import { asked } from './work.ts';

const sleep = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));

/** How long a client waits for an answer, and for the next byte of a stream, before it turns to another instance. Milliseconds. */
const ANSWER_MS = 5_000;
const QUIET_MS = 4_000;

const STRATEGIES = ['reject', 'reject', 'reject', 'interrupt', 'interrupt', 'rollback', 'enqueue', 'enqueue'] as const;
type Strategy = (typeof STRATEGIES)[number];

export interface ClientCounts {
  requests: number;
  /** Requests that were sent again under the same key. */
  repeats: number;
  refused: number;
  created: number;
  cancels: number;
  joins: number;
  /** Streams that were read, and how often one was taken up again after a break. */
  streams: number;
  resumes: number;
  /** Streams whose words came while they were written, by an instance that did not write them or did. */
  words: number;
}

export const noCounts = (): ClientCounts => ({
  requests: 0,
  repeats: 0,
  refused: 0,
  created: 0,
  cancels: 0,
  joins: 0,
  streams: 0,
  resumes: 0,
  words: 0,
});

export interface ClientParts {
  readonly name: string;
  readonly random: () => number;
  /** Addresses of the instances. */
  readonly urls: () => readonly string[];
  readonly threads: readonly string[];
  /** No new work from here on. */
  readonly untilMs: number;
  /** What is not answered by now will not be. */
  readonly isLate: () => boolean;
  readonly count: ClientCounts;
  /** Ends what was begun, by thread. */
  readonly onSeen: (threadId: string, seen: Seen) => void;
  readonly onStuck: (text: string) => void;
}

interface Noted {
  readonly label: string;
  readonly runIds: string[];
  readonly contradictions: string[];
  readonly ends: string[];
  texts: Map<string, string> | null;
  readonly streamProblems: string[];
}

/** A user with the official client: asks for work on threads that others use too, follows it, cancels it, comes back. */
export class StormClient {
  readonly #parts: ClientParts;
  #made = 0;

  constructor(parts: ClientParts) {
    this.#parts = parts;
  }

  async work(): Promise<void> {
    const { random, untilMs, threads } = this.#parts;
    await sleep(random() * 1_500);
    while (performance.now() < untilMs) {
      const threadId = threads[Math.floor(random() * threads.length)] ?? '';
      await this.#ask(threadId);
      await sleep(random() * 1_500);
    }
  }

  async #ask(threadId: string): Promise<void> {
    const { random, count, name, onSeen } = this.#parts;
    this.#made += 1;
    const label = `${name}-${this.#made}`;
    const seen: Noted = { label, runIds: [], contradictions: [], ends: [], texts: null, streamProblems: [] };
    const strategy = STRATEGIES[Math.floor(random() * STRATEGIES.length)] ?? 'reject';
    const runId = await this.#create(threadId, strategy, seen);
    if (runId === null) {
      if (seen.contradictions.length > 0) onSeen(threadId, seen);
      return;
    }
    count.created += 1;
    const what = random();
    if (what < 0.2) {
      await sleep(random() * 1_200);
      await this.#cancel(threadId, runId, random() < 0.7 ? 'interrupt' : 'rollback', random() < 0.5);
      await this.#follow(threadId, runId, seen);
    } else if (what < 0.4) await this.#join(threadId, runId, seen);
    else if (what < 0.9) await this.#follow(threadId, runId, seen);
    // Who leaves still finds the same run under the key.
    if (random() < 0.3) await this.#create(threadId, strategy, seen);
    onSeen(threadId, seen);
  }

  /** Asks until there is an answer, under one key, wherever somebody answers. */
  async #create(threadId: string, strategy: Strategy, seen: Noted): Promise<string | null> {
    const { count } = this.#parts;
    for (let tries = 1; ; tries += 1) {
      if (tries > 1) count.repeats += 1;
      const run = await this.#once(
        (client) =>
          client.runs.create(threadId, 'lead_agent', {
            input: say(asked(seen.label)),
            streamMode: ['messages-tuple', 'values'],
            streamResumable: true,
            multitaskStrategy: strategy,
            metadata: { label: seen.label },
            onDisconnect: 'continue',
          }),
        seen.label,
      );
      if (run.outcome === 'ok') {
        seen.runIds.push(run.value.run_id);
        return run.value.run_id;
      }
      if (run.outcome === 'refused') {
        count.refused += 1;
        if (run.status === 422 && strategy === 'enqueue' && run.text.includes('not supported')) return null;
        if (run.status !== 409 && run.status !== 429) seen.contradictions.push(`refused with ${run.text}`);
        else if (seen.runIds.length > 0) seen.contradictions.push(`refused after it was accepted: ${run.text}`);
        return null;
      }
      if (await this.#late(`the request ${seen.label}`)) return null;
    }
  }

  async #cancel(threadId: string, runId: string, action: 'interrupt' | 'rollback', wait: boolean): Promise<void> {
    this.#parts.count.cancels += 1;
    for (;;) {
      const answer = await this.#once((client) => client.runs.cancel(threadId, runId, wait, action));
      // Refused: it has ended meanwhile, or nobody can say at once that it has.
      if (answer.outcome !== 'unknown') return;
      if (await this.#late(`the cancel of ${runId}`)) return;
    }
  }

  async #join(threadId: string, runId: string, seen: Noted): Promise<void> {
    this.#parts.count.joins += 1;
    for (;;) {
      const over = AbortSignal.timeout(15_000);
      const answer = await this.#once((client) => client.runs.join(threadId, runId, { signal: over }), null, 15_000);
      // An answer that says that this instance cannot tell is none.
      const cannotTell = answer.outcome === 'ok' && /store_unavailable|shutting_down/.test(errorIn(answer.value));
      if (answer.outcome === 'ok' && !cannotTell) {
        const run = await this.#once((client) => client.runs.get(threadId, runId));
        if (run.outcome === 'ok') {
          seen.ends.push(run.value.status);
          return;
        }
      }
      if (await this.#late(`joining ${runId}`)) return;
    }
  }

  /** Reads a run's stream from its first event to its end, taking it up again wherever an instance answers. */
  async #follow(threadId: string, runId: string, seen: Noted): Promise<void> {
    const { count } = this.#parts;
    count.streams += 1;
    const texts = new Map<string, string>();
    let lastEventId = '-1';
    let newest: readonly [number, number] = [0, 0];
    for (let breaks = 0; ; breaks += 1) {
      if (breaks > 0) count.resumes += 1;
      const over = new AbortController();
      let watch = setTimeout(() => over.abort(), ANSWER_MS);
      try {
        const client = this.#client(null, null);
        for await (const part of client.runs.joinStream(threadId, runId, { lastEventId, signal: over.signal })) {
          clearTimeout(watch);
          watch = setTimeout(() => over.abort(), QUIET_MS);
          const { event, data, id } = part as { event: string; data: unknown; id?: string };
          if (event === 'messages') {
            const [chunk] = data as [{ id: string; type: string; content: string }];
            if (chunk.type === 'remove') texts.delete(chunk.id);
            else texts.set(chunk.id, (texts.get(chunk.id) ?? '') + chunk.content);
            if (chunk.type === 'AIMessageChunk') count.words += 1;
          }
          if (event === 'gap') seen.streamProblems.push(`a gap: ${JSON.stringify(data)}`);
          if (id !== undefined) {
            const position = positionOf(id);
            if (position === null) seen.streamProblems.push(`an id that is none: ${id}`);
            // An event without an id of its own shows the one before it.
            else if (position[0] < newest[0] || (position[0] === newest[0] && position[1] < newest[1]))
              seen.streamProblems.push(`event ${id} came behind ${newest.join('.')}`);
            else newest = position;
            lastEventId = id;
          }
          if (event === 'end') {
            seen.ends.push((data as { status: string }).status);
            seen.texts = texts;
            return;
          }
        }
      } catch {
        // Broken, quiet for too long, or refused for now.
      } finally {
        clearTimeout(watch);
        over.abort();
      }
      if (await this.#late(`the stream of ${runId}, at ${lastEventId}`)) return;
    }
  }

  /** One request to one instance. Unknown: no answer, or one that says to try again. */
  async #once<T>(
    ask: (client: Client) => Promise<T>,
    key: string | null = null,
    patienceMs = ANSWER_MS,
  ): Promise<
    | { readonly outcome: 'ok'; readonly value: T }
    | { readonly outcome: 'refused'; readonly status: number; readonly text: string }
    | { readonly outcome: 'unknown' }
  > {
    this.#parts.count.requests += 1;
    try {
      return { outcome: 'ok', value: await ask(this.#client(key, patienceMs)) };
    } catch (error) {
      const status = error instanceof Error && 'status' in error ? Number(error.status) : 0;
      if (status >= 400 && status < 500) return { outcome: 'refused', status, text: `${status} ${String(error)}` };
      return { outcome: 'unknown' };
    }
  }

  #client(key: string | null, patienceMs: number | null): Client {
    const { random, urls } = this.#parts;
    const all = urls();
    const url = all[Math.floor(random() * all.length)] ?? '';
    return new Client({
      apiUrl: `${url}/api`,
      apiKey: null,
      ...(key === null ? {} : { defaultHeaders: { 'idempotency-key': key } }),
      callerOptions: {
        maxRetries: 0,
        ...(patienceMs === null
          ? {}
          : {
              fetch: (input: string | URL | Request, init?: RequestInit) => {
                const signals = [AbortSignal.timeout(patienceMs), ...(init?.signal ? [init.signal] : [])];
                return fetch(input, { ...init, signal: AbortSignal.any(signals) });
              },
            }),
      },
    });
  }

  /** Waits a little before the next try; true = it is no use any more, and that is told. */
  async #late(what: string): Promise<boolean> {
    const { random, isLate, onStuck } = this.#parts;
    if (isLate()) {
      onStuck(what);
      return true;
    }
    await sleep(50 + random() * 300);
    return false;
  }
}

const errorIn = (values: unknown): string => {
  const { __error__: error } = (values ?? {}) as { readonly __error__?: { readonly error?: string } };
  return error?.error ?? '';
};

function positionOf(id: string): readonly [number, number] | null {
  const match = /^[a-z0-9]+-(\d+)(?:\.(\d+))?$/.exec(id);
  return match === null ? null : [Number(match[1]), Number(match[2] ?? 0)];
}
