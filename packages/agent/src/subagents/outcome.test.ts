import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { GraphRecursionError } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { ERROR_FALLBACK } from '../middleware/llm-errors.ts';
import { outcomeOf, STOPPED_BY } from './outcome.ts';

const ai = (content: string, kwargs: Record<string, unknown> = {}) =>
  new AIMessage({ content, additional_kwargs: kwargs });
const recursion = new GraphRecursionError('limit', { lc_error_code: 'GRAPH_RECURSION_LIMIT' });

test('only the marker on the newest message fails, neither words nor an older marker', verifies('SA-16'), () => {
  const marked = ai('The provider failed.', { [ERROR_FALLBACK]: true });
  expect(outcomeOf([marked], null, null)).toMatchObject({ status: 'failed', error: 'The provider failed.' });
  expect(outcomeOf([marked, new HumanMessage('again'), ai('fine')], null, null)).toMatchObject({
    status: 'completed',
    result: 'fine',
  });
  expect(outcomeOf([ai('Error: The provider failed. error_fallback')], null, null).status).toBe('completed');
});

test(
  'the step limit: an answer so far completes, none fails, a marker fails; a guard names itself',
  verifies('SA-17', 'SA-18'),
  () => {
    const shape = (...args: Parameters<typeof outcomeOf>) => {
      const { status, stopReason } = outcomeOf(...args);
      return [status, stopReason];
    };
    expect(shape([ai('half')], recursion, null)).toEqual(['completed', 'turn_capped']);
    expect(shape([ai('half')], recursion, 'loop_capped')).toEqual(['completed', 'loop_capped']);
    expect(shape([ai('')], recursion, null)).toEqual(['failed', 'turn_capped']);
    expect(shape([ai('x', { [ERROR_FALLBACK]: true })], recursion, null)).toEqual(['failed', 'turn_capped']);
    expect(shape([ai('half')], null, 'loop_capped')).toEqual(['completed', 'loop_capped']);
    expect(shape([ai('half', { [STOPPED_BY]: 'token_capped' })], null, null)).toEqual(['completed', 'token_capped']);
    expect(shape([ai('half')], null, 'something_else')).toEqual(['completed', null]);
    expect(shape([ai('half')], new Error('boom'), null)).toEqual(['failed', null]);
    expect(shape([], null, null)).toEqual(['failed', null]);
  },
);
