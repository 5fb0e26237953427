import type { Feedback, FeedbackStore } from '@reindeer/protocol';
import type { MemoryDatabase } from './data.ts';
import type { Transact } from './runs.ts';

/** Feedback of a memory database, by thread, run and user. */
export function memoryFeedback(database: MemoryDatabase, transact: Transact): FeedbackStore {
  const keyOf = (of: Pick<Feedback, 'threadId' | 'runId' | 'userId'>) =>
    JSON.stringify([of.threadId, of.runId, of.userId]);
  return {
    put: (feedback) =>
      transact(() => {
        const key = keyOf(feedback);
        const stored = { ...feedback, feedbackId: database.feedback.get(key)?.feedbackId ?? feedback.feedbackId };
        database.feedback.set(key, stored);
        return { ...stored };
      }),
    list: ({ threadId, runId }) =>
      transact(() =>
        [...database.feedback.values()]
          .filter((one) => one.threadId === threadId && (runId === null || one.runId === runId))
          .sort((a, b) => a.createdAt - b.createdAt)
          .slice(0, 1_000)
          .map((one) => ({ ...one })),
      ),
    remove: ({ feedbackId, ...own }) =>
      transact(() => {
        const key = keyOf(own);
        const there = database.feedback.get(key);
        if (there === undefined || (feedbackId !== null && there.feedbackId !== feedbackId)) return false;
        return database.feedback.delete(key);
      }),
  };
}
