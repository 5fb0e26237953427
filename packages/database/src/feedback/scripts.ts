import { type Feedback, type FeedbackStore, ReindeerError } from '@reindeer/protocol';
import { defineScript, defineStatement } from '../executor.ts';

type Input<M extends keyof FeedbackStore> = Parameters<FeedbackStore[M]>[0];

const MOST = 1_000;

/** One statement decides: the first one gives the row its id, each further one its content. */
const upsert = defineStatement((db, p: Feedback) =>
  db
    .insertInto('feedback')
    .values({
      thread_id: p.threadId,
      run_id: p.runId,
      user_id: p.userId,
      feedback_id: p.feedbackId,
      message_id: p.messageId,
      rating: p.rating,
      comment: p.comment,
      created_at: p.createdAt,
    })
    .onConflict((c) =>
      c.columns(['thread_id', 'run_id', 'user_id']).doUpdateSet((eb) => ({
        message_id: eb.ref('excluded.message_id'),
        rating: eb.ref('excluded.rating'),
        comment: eb.ref('excluded.comment'),
        created_at: eb.ref('excluded.created_at'),
      })),
    )
    .returning('feedback_id'),
);
const ofThread = defineStatement((db, p: { threadId: string }) =>
  db.selectFrom('feedback').selectAll().where('thread_id', '=', p.threadId).orderBy('created_at').limit(MOST),
);
const ofRun = defineStatement((db, p: { threadId: string; runId: string }) =>
  db
    .selectFrom('feedback')
    .selectAll()
    .where('thread_id', '=', p.threadId)
    .where('run_id', '=', p.runId)
    .orderBy('created_at')
    .limit(MOST),
);
const removeOwn = defineStatement((db, p: { threadId: string; runId: string; userId: string }) =>
  db
    .deleteFrom('feedback')
    .where('thread_id', '=', p.threadId)
    .where('run_id', '=', p.runId)
    .where('user_id', '=', p.userId),
);
const removeById = defineStatement((db, p: { threadId: string; runId: string; userId: string; feedbackId: string }) =>
  db
    .deleteFrom('feedback')
    .where('thread_id', '=', p.threadId)
    .where('run_id', '=', p.runId)
    .where('user_id', '=', p.userId)
    .where('feedback_id', '=', p.feedbackId),
);
/** With the thread. */
export const deleteFeedback = defineStatement((db, p: { threadId: string }) =>
  db.deleteFrom('feedback').where('thread_id', '=', p.threadId),
);

const put = defineScript('feedback.put', 'write', async (tx, input: Input<'put'>): Promise<Feedback> => {
  const row = await tx.first(upsert, input);
  if (row === undefined) throw new ReindeerError('internal', 'A feedback was written and is not there.');
  return { ...input, feedbackId: row.feedback_id };
});

const list = defineScript('feedback.list', 'read', async (tx, input: Input<'list'>): Promise<Feedback[]> => {
  const { threadId, runId } = input;
  const rows = await (runId === null ? tx.all(ofThread, { threadId }) : tx.all(ofRun, { threadId, runId }));
  return rows.map((row) => ({
    feedbackId: row.feedback_id,
    threadId: row.thread_id,
    runId: row.run_id,
    userId: row.user_id,
    messageId: row.message_id,
    rating: row.rating === 1 ? 1 : -1,
    comment: row.comment,
    createdAt: row.created_at,
  }));
});

const remove = defineScript('feedback.remove', 'write', async (tx, input: Input<'remove'>): Promise<boolean> => {
  const { threadId, runId, userId, feedbackId } = input;
  const own = { threadId, runId, userId };
  const removed = await (feedbackId === null ? tx.run(removeOwn, own) : tx.run(removeById, { ...own, feedbackId }));
  return removed === 1;
});

export const feedbackScripts = { 'feedback.put': put, 'feedback.list': list, 'feedback.remove': remove };
