import { AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { summarize } from '../context/summary.ts';
import { evaluateGoal } from '../goals/evaluate.ts';
import { suggestQuestions } from '../lead/suggestions.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { askOnce } from './ask-once.ts';

/** Remembers under which name and with which particulars it was asked. */
class Watched extends FakeModel {
  readonly asked: Record<string, unknown>[] = [];

  override async invoke(input: never, options?: never): Promise<never> {
    this.asked.push((options ?? {}) as Record<string, unknown>);
    return super.invoke(input, options) as never;
  }
}
const CONVERSATION: BaseMessage[] = [new HumanMessage('Count the files.'), new AIMessage('There are three.')];
const signal = undefined;

describe('one question beside the work', () => {
  test(
    'has its purpose in traces, streams to nobody, and answers without what was thought',
    verifies('MOD-6'),
    async () => {
      const model = new Watched([{ text: '<think>hm, hm</think> Three files ' }]);
      expect(await askOnce({ model, question: 'What is it?', purpose: 'title' })).toBe('Three files');
      expect(model.asked).toEqual([
        { runName: 'title', metadata: { purpose: 'title', model_name: 'fake-1' }, callbacks: [], tags: ['nostream'] },
      ]);
      expect(model.requests.map((messages) => messages.map((message) => message.text))).toEqual([['What is it?']]);
    },
  );

  test('summaries, goals and suggestions are asked in this way, with what they cost', verifies('MOD-6'), async () => {
    const model = new Watched([
      { text: 'The user counts files.' },
      { text: '{"satisfied": true}' },
      { text: '["Which files?"]' },
    ]);
    const costs: string[] = [];
    const onUsage = (usage: { model: string }) => void costs.push(usage.model);
    const settings = { prompt: null, trimTokens: 1_000 };
    await summarize({ model, previous: '', messages: CONVERSATION, current: '', settings, signal, onUsage });
    await evaluateGoal({ model, objective: 'count', messages: CONVERSATION, now: 0, signal, onUsage });
    await suggestQuestions({ model, count: 1, messages: [{ role: 'user', content: 'Count.' }] });
    expect(model.asked.map((options) => options.runName)).toEqual(['summary', 'goal', 'suggestions']);
    expect(model.asked.every((options) => (options.callbacks as unknown[]).length === 0)).toBe(true);
    expect(costs).toEqual(['fake-1', 'fake-1']);
  });

  test('ends with the signal, and with its time', verifies('MOD-6'), async () => {
    const waits = (given: AbortSignal | undefined) =>
      new Promise<void>((_, reject) => {
        if (given?.aborted === true) reject(given.reason);
        given?.addEventListener('abort', () => reject(given.reason));
      });
    const ask = { model: new Watched([{ text: 'never', before: waits }]), question: '?', purpose: 'title' };
    const stop = new AbortController();
    const asked = askOnce({ ...ask, signal: stop.signal });
    stop.abort(new Error('stopped'));
    await expect(asked).rejects.toThrow();
    const heard: unknown[] = [];
    const onFailure = (error: unknown) => void heard.push(error);
    await expect(askOnce({ ...ask, timeoutMs: 1, onFailure })).rejects.toThrow(/timeout|abort/i);
    expect(heard).toMatchObject([{ name: 'TimeoutError' }]);
  });
});
