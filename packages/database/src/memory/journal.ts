import type { JournalBegin, NewFact, ToolCallKey, ToolJournal } from '@reindeer/protocol';
import { factKey, ReindeerError } from '@reindeer/protocol';
import type { JournalRow, MemoryDatabase } from './data.ts';
import { keepMessages } from './data.ts';
import type { Transact } from './runs.ts';

const journalKey = (key: ToolCallKey): string => `${key.messageId}\n${key.index}`;

/**
 * The tool journal on a memory database. States of a call: absent ⇄ started → finished. `finished` is absorbing: its
 * result is what every later `begin` and `finish` answers (D7).
 */
export function memoryJournal(database: MemoryDatabase, transact: Transact): ToolJournal {
  return {
    begin: ({ fence, key, toolCallId, name, attempt, again, now }) =>
      transact((): JournalBegin => {
        const right = database.held(fence);
        if (right === null || right.run.threadId !== key.threadId) return { outcome: 'fenced' };
        const { journal } = database.shelf(key.threadId);
        const known = journal.get(journalKey(key));
        if (known?.finished) return { outcome: 'finished', result: known.finished.result };
        if (known !== undefined && known.token !== fence.token && !again)
          return { outcome: 'unfinished', startedAt: known.startedAt, attempt: known.attempt };
        if (known === undefined) {
          const row: JournalRow = {
            key: { ...key },
            toolCallId,
            name,
            runId: fence.runId,
            token: fence.token,
            attempt,
            startedAt: now,
            order: database.nextOrder(),
            finished: null,
          };
          journal.set(journalKey(key), row);
        } else if (known.token !== fence.token)
          Object.assign(known, { runId: fence.runId, token: fence.token, attempt, startedAt: now });
        const fact: NewFact = {
          key: factKey.toolStarted(key.messageId, key.index, fence.runId, attempt),
          body: { kind: 'tool-started', messageId: key.messageId, index: key.index, toolCallId, name, attempt },
        };
        database.append(key.threadId, fence.runId, [fact], now);
        return { outcome: 'begin' };
      }),

    finish: ({ fence, key, outcome, result, now }) =>
      transact(() => {
        const right = database.held(fence);
        if (right === null || right.run.threadId !== key.threadId) return { outcome: 'fenced' };
        const shelf = database.shelf(key.threadId);
        const row = shelf.journal.get(journalKey(key));
        if (row === undefined)
          throw new ReindeerError(
            'internal',
            `The tool call ${key.messageId}#${key.index} was finished without having begun.`,
          );
        if (row.finished !== null) return { outcome: 'ok', result: row.finished.result };
        row.finished = { outcome, result: { json: result.json, messages: [...result.messages] } };
        keepMessages(shelf, result);
        const fact: NewFact = {
          key: factKey.toolFinished(key.messageId, key.index),
          body: {
            kind: 'tool-finished',
            messageId: key.messageId,
            index: key.index,
            toolCallId: row.toolCallId,
            name: row.name,
            outcome,
          },
        };
        database.append(key.threadId, fence.runId, [fact], now);
        return { outcome: 'ok', result: row.finished.result };
      }),

    retract: ({ fence, key }) =>
      transact(() => {
        const right = database.held(fence);
        if (right === null || right.run.threadId !== key.threadId) return { outcome: 'fenced' };
        const { journal } = database.shelf(key.threadId);
        if (journal.get(journalKey(key))?.finished === null) journal.delete(journalKey(key));
        return { outcome: 'ok' };
      }),

    unfinished: (threadId) =>
      transact(() =>
        [...(database.shelves.get(threadId)?.journal.values() ?? [])]
          .filter((row) => row.finished === null)
          .sort((a, b) => a.startedAt - b.startedAt || a.order - b.order)
          .map(({ key, name, attempt, startedAt }) => ({ key: { ...key }, name, attempt, startedAt })),
      ),
  };
}
