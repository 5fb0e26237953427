import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { ERROR_FALLBACK } from './llm-errors.ts';
import { terminalResponseMiddleware } from './terminal-response.ts';

const look = tool(() => 'seen', { name: 'look', description: 'l', schema: z.object({}) });
const looking: Turn = { calls: [{ name: 'look', args: {} }] };
const empty: Turn = {};

async function play(turns: readonly Turn[], input: HumanMessage = new HumanMessage('go')) {
  const model = new FakeModel(turns);
  const attempt = recordedAttempt();
  const { start } = fixture({ model, tools: [look], middleware: [terminalResponseMiddleware()] });
  const saver = new MemorySaver();
  return { ...(await drain(start(saver, attempt), { messages: [input] }, attempt)), model, saver, start };
}

test('an empty answer after tools is asked for once more; nothing of it stays', verifies('MW-32'), async () => {
  const { messages, model, attempt, start, saver } = await play([looking, empty, { text: 'Here it is.' }]);
  expect(messages.map((message) => message.text)).toEqual(['go', '', 'seen', 'Here it is.']);
  expect(model.requests).toHaveLength(3);
  expect(model.requests[2]?.at(-1)?.text).toMatch(/Your last answer was empty/);
  expect(attempt.failures).toEqual([]);
  const history: string[] = [];
  for await (const state of start(saver, attempt).getStateHistory({
    configurable: { thread_id: attempt.run.threadId },
  }))
    history.push((state.values.messages as BaseMessage[]).map((message) => message.type).join(' '));
  expect(new Set(history)).not.toContain('human ai tool ai ai');
});

test('the note goes with one request only', verifies('MW-32'), async () => {
  const { model, messages } = await play([looking, empty, looking, { text: 'There.' }]);
  const noted = model.requests.map((request) => request.some((message) => message.text.includes('answer was empty')));
  expect(noted).toEqual([false, false, true, false]);
  expect(messages.at(-1)?.text).toBe('There.');
});

test('a second empty answer is a visible error and a failed run', verifies('MW-32'), async () => {
  const { messages, model, attempt } = await play([looking, empty]);
  expect(model.requests).toHaveLength(3);
  expect(messages.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'ai']);
  expect(messages.at(-1)?.text).toMatch(/gave no visible answer/);
  expect(messages.at(-1)?.additional_kwargs[ERROR_FALLBACK]).toBe(true);
  expect(attempt.failures).toHaveLength(1);
});

test('not without tool results, and not without a message of the user', verifies('MW-32'), async () => {
  expect((await play([empty])).model.requests).toHaveLength(1);
  const hidden = new HumanMessage({ content: 'note', additional_kwargs: { hide_from_ui: true } });
  expect((await play([looking, empty], hidden)).model.requests).toHaveLength(2);
});

test('each run has its own second chance, and tools of an earlier turn do not count', verifies('MW-32'), async () => {
  const { model, start, saver } = await play([looking, empty, { text: 'one' }, looking, empty, { text: 'two' }, empty]);
  const second = recordedAttempt({ attempt: 2 });
  const after = await drain(start(saver, second), { messages: [new HumanMessage('again')] }, second);
  expect(after.messages.at(-1)?.text).toBe('two');
  const third = recordedAttempt({ attempt: 3 });
  await drain(start(saver, third), { messages: [new HumanMessage('and now')] }, third);
  expect(model.requests).toHaveLength(7);
});
