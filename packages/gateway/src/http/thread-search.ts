import { z } from '@hono/zod-openapi';
import { ReindeerError } from '@reindeer/protocol';
import type { HttpParts } from './parts.ts';
import { type Api, route } from './route.ts';
import { runsOf, supersededFacts, supersededRuns } from './thread-reading.ts';
import { isoTime, threadView } from './views.ts';

/**
 * There is no index over what was said: it would weigh about as much as the messages themselves (D4), for something that is asked now and then. So a
 * search reads, newest first, within these bounds, and says when there was more.
 */
const THREADS = 500;
/** Messages of one thread, and bytes of them, about. */
const MESSAGES = 200;
const BYTES = 2 * 1024 * 1024;
const TIME_MS = 2_000;
/** Threads read from the list at once. */
const PAGE = 50;
/** Hits of one thread, so that one is left when newer ones were replaced. */
const PER_THREAD = 10;
/** Searches of this process at once: each keeps the database at work. */
const AT_ONCE = 4;
const MOST_WORDS = 8;

const wordsOf = (query: string): string[] =>
  [...new Set(query.toLowerCase().split(/\s+/))].filter((word) => word !== '');

export function threadSearchRoutes(api: Api, parts: HttpParts): void {
  const { threads } = parts;
  const { clock } = parts.surroundings;
  let searching = 0;

  route(
    api,
    {
      method: 'post',
      path: '/threads/messages/search',
      tag: 'Threads',
      summary: `Threads with a message that has every word, newest first, with the newest such message. Looks at the newest ${MESSAGES} messages of the newest ${THREADS} threads, for ${TIME_MS / 1000} seconds at the most.`,
      body: z.strictObject({
        query: z
          .string()
          .trim()
          .min(2)
          .max(200)
          .refine((query) => wordsOf(query).length <= MOST_WORDS, `must have at most ${MOST_WORDS} words`),
        limit: z.number().int().min(1).max(50).default(20),
      }),
      answers: {
        200: '{data: [{thread, match: {seq, run_id, message_id, role, snippet, created_at}}], threads, complete}; `threads`: how many were looked at; `complete`: false = older messages or threads were not.',
        422: 'A field is wrong.',
        503: 'Too many searches at once.',
      },
    },
    async ({ c, body }) => {
      if (searching >= AT_ONCE)
        throw new ReindeerError('over_capacity', 'Too many searches are under way. Try again in a moment.', {
          retryable: true,
        });
      searching += 1;
      try {
        return c.json(await search(c.get('userId'), wordsOf(body.query), body.limit, c.req.raw.signal));
      } finally {
        searching -= 1;
      }
    },
  );

  async function search(userId: string, words: readonly string[], limit: number, signal: AbortSignal) {
    const end = clock.monotonic() + TIME_MS;
    const data: unknown[] = [];
    const seen = new Set<string>();
    let complete = true;
    for (let offset = 0; ; offset += PAGE) {
      const page = await threads.search({ userId, metadata: {}, status: null, limit: PAGE, offset });
      for (const thread of page) {
        const { threadId } = thread;
        // The list moves while it is read.
        if (seen.has(threadId)) continue;
        if (data.length >= limit || seen.size >= THREADS || clock.monotonic() >= end || signal.aborted)
          return { data, threads: seen.size, complete: false };
        seen.add(threadId);
        const bounds = { words, most: PER_THREAD, limit: MESSAGES, maxBytes: BYTES };
        const looked = await threads.find({ threadId, userId, ...bounds });
        if (looked === null) continue;
        complete &&= looked.complete;
        if (looked.found.length === 0) continue;
        const runs = (await runsOf(parts, { threadId, userId })) ?? [];
        const hidden = supersededRuns(runs);
        const isReplaced = supersededFacts(runs);
        const match = looked.found.find(({ runId, seq }) => !(runId !== null && hidden.has(runId)) && !isReplaced(seq));
        if (match === undefined) continue;
        const { seq, runId, messageId, role, snippet, at } = match;
        const view = { seq, run_id: runId, message_id: messageId, role, snippet, created_at: isoTime(at) };
        data.push({ thread: threadView(thread, null), match: view });
      }
      if (page.length < PAGE) return { data, threads: seen.size, complete };
    }
  }
}
