import { HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { DEFAULT_TITLE_SETTINGS, titleMiddleware } from './title.ts';

async function titled(error: unknown) {
  const surroundings = testSurroundings();
  const attempt = recordedAttempt();
  const { start } = fixture({
    model: new FakeModel([{ text: 'hello' }]),
    middleware: [
      titleMiddleware({ ...DEFAULT_TITLE_SETTINGS, model: new FakeModel([{ error }], 'small') }, surroundings),
    ],
  });
  const { messages } = await drain(start(new MemorySaver(), attempt), { messages: [new HumanMessage('go')] }, attempt);
  expect(messages.at(-1)?.text).toBe('hello');
  return attempt.emitted;
}

test('a question beside the work that fails is told for good too, with what it was for', async () => {
  const busy = Object.assign(new Error('busy'), { status: 503 });
  expect(await titled(busy)).toEqual([
    {
      type: 'llm_error',
      provider: 'fake',
      model: 'small',
      kind: 'transient',
      status: 503,
      code: null,
      attempt: 1,
      retried: false,
      purpose: 'title',
    },
  ]);
  expect(await titled(new ReindeerError('configuration', 'no key'))).toEqual([]);
});
