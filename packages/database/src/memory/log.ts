import type { Fact, FoundMessage, Log } from '@reindeer/protocol';
import { findIn } from '../log/find.ts';
import type { MemoryDatabase, ThreadShelf } from './data.ts';
import { resolveFact } from './data.ts';
import type { Transact } from './runs.ts';

const NOTHING: Pick<ThreadShelf, 'facts' | 'head' | 'prunedThrough'> = { facts: [], head: 0, prunedThrough: 0 };

/** The log of facts on a memory database. `listeners` are those of one handle; the caller drops them when it closes. */
export function memoryLog(
  database: MemoryDatabase,
  transact: Transact,
  listeners: Set<(threadId: string, head: number) => void>,
): Log {
  return {
    epoch: () => transact(() => database.epoch),

    read: ({ threadId, runId, afterSeq, limit, maxBytes }) =>
      transact(() => {
        const shelf = database.shelves.get(threadId);
        if (shelf === undefined) return { ...NOTHING };
        const facts: Fact[] = [];
        let bytes = 0;
        // Sequences are dense, so that the position in the array follows from the sequence.
        for (let at = Math.max(0, afterSeq - shelf.prunedThrough); at < shelf.facts.length; at += 1) {
          const fact = shelf.facts[at];
          if (fact === undefined || facts.length >= limit) break;
          if (runId !== null && fact.runId !== runId) continue;
          const whole = resolveFact(shelf, fact);
          bytes += Buffer.byteLength(JSON.stringify(whole.body));
          if (facts.length > 0 && bytes > maxBytes) break;
          facts.push(whole);
        }
        return { facts, head: shelf.head, prunedThrough: shelf.prunedThrough };
      }),

    firstSeq: ({ threadId, runId }) =>
      transact(() => database.shelves.get(threadId)?.facts.find((fact) => fact.runId === runId)?.seq ?? null),

    append: ({ fence, threadId, facts, now }) => {
      const batch = [...facts];
      return transact(() => {
        const row = database.held(fence);
        if (row === null || row.run.threadId !== threadId) return { outcome: 'fenced' };
        return { outcome: 'ok', head: database.append(threadId, fence.runId, batch, now) };
      });
    },

    messages: ({ threadId, runId, before, after, limit }) =>
      transact(() => {
        const shelf = database.shelves.get(threadId);
        if (shelf === undefined) return { ...NOTHING };
        const wanted = shelf.facts.filter(
          (fact) =>
            fact.body.kind === 'message' &&
            (runId === null || fact.runId === runId) &&
            (before === null || fact.seq < before) &&
            (after === null || fact.seq > after),
        );
        // Forward from `after`; otherwise the page that ends at `before` (or at the head).
        const page = after !== null && before === null ? wanted.slice(0, limit) : wanted.slice(-limit);
        return {
          facts: page.map((fact) => resolveFact(shelf, fact)),
          head: shelf.head,
          prunedThrough: shelf.prunedThrough,
        };
      }),

    find: ({ threadId, words, most, limit, maxBytes }) =>
      transact(() => {
        const found: FoundMessage[] = [];
        const shelf = database.shelves.get(threadId);
        if (shelf === undefined) return { found, complete: true };
        const messages = shelf.facts.filter(({ body }) => body.kind === 'message').reverse();
        let bytes = 0;
        for (const fact of messages.slice(0, limit)) {
          const { seq, runId, at, body } = resolveFact(shelf, fact);
          const text = JSON.stringify(body);
          bytes += Buffer.byteLength(text);
          const hit = findIn(text, words);
          if (hit !== null) found.push({ seq, runId, at, ...hit });
          if (found.length >= most || bytes > maxBytes) return { found, complete: false };
        }
        return { found, complete: messages.length < limit };
      }),

    onAppend: (listener) => {
      // A wrapper of its own, so that the same function may listen twice and leave once.
      const own = (threadId: string, head: number): void => listener(threadId, head);
      listeners.add(own);
      database.listeners.add(own);
      return () => {
        listeners.delete(own);
        database.listeners.delete(own);
      };
    },
  };
}
