import { expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { StoresFactory } from './scene.ts';
import { scenes } from './scene.ts';

/** Contract of `FeedbackStore`: part of the thread store's suite, since it goes with the thread. */
export function feedbackTests(factory: StoresFactory): void {
  const scene = scenes(factory);
  const of = { threadId: 'thread', runId: 'run', userId: 'ann', messageId: null, comment: null };

  test('one feedback per run and user: the first gives the id, the last the content', verifies('API-09'), async () => {
    const { a, b } = await scene();
    await a.feedback.put({ ...of, feedbackId: 'f1', rating: 1, createdAt: 1 });
    const again = await b.feedback.put({ ...of, feedbackId: 'f2', rating: -1, comment: 'wrong', createdAt: 2 });
    const expected = { ...of, feedbackId: 'f1', rating: -1, comment: 'wrong', createdAt: 2 };
    expect(again).toEqual(expected);
    await a.feedback.put({ ...of, userId: 'bob', feedbackId: 'f3', rating: 1, createdAt: 3 });
    await a.feedback.put({ ...of, runId: 'other', feedbackId: 'f4', rating: 1, createdAt: 4 });
    expect((await a.feedback.list({ threadId: 'thread', runId: 'run' })).map((one) => one.feedbackId)).toEqual([
      'f1',
      'f3',
    ]);
    expect(await a.feedback.list({ threadId: 'thread', runId: null })).toHaveLength(3);
    expect((await a.feedback.list({ threadId: 'thread', runId: 'run' }))[0]).toEqual(expected);
  });

  test('is taken back by whose it is, once', async () => {
    const { a } = await scene();
    await a.feedback.put({ ...of, feedbackId: 'f1', rating: 1, createdAt: 1 });
    const own = { threadId: 'thread', runId: 'run', userId: 'ann' };
    expect(await a.feedback.remove({ ...own, userId: 'bob', feedbackId: null })).toBe(false);
    expect(await a.feedback.remove({ ...own, feedbackId: 'f9' })).toBe(false);
    expect(await a.feedback.remove({ ...own, feedbackId: 'f1' })).toBe(true);
    expect(await a.feedback.remove({ ...own, feedbackId: null })).toBe(false);
  });
}
