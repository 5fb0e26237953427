import type { JsonObject } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { RunEvent } from './events.ts';
import { settle } from './options.ts';
import { answerOf } from './run.ts';

const usage = { input_tokens: 1, output_tokens: 2, total_tokens: 3 };
const end: RunEvent = { type: 'end', data: { run_id: 'r', thread_id: 't', status: 'success', usage } };
const says = (id: string, content: string): RunEvent => ({ type: 'messages-tuple', data: { type: 'ai', id, content } });

async function* told(...events: readonly RunEvent[]): AsyncGenerator<RunEvent> {
  yield* events;
}

describe('an answer', () => {
  test('is the last message of the model, put together by id, with the state and the end', async () => {
    const values = { title: 'T', messages: [{ type: 'ai' }] as JsonObject[], artifacts: ['/a'], interrupts: [] };
    const events = told(
      says('a', 'First'),
      says('b', 'Sec'),
      says('a', '.'),
      says('b', 'ond'),
      { type: 'values', data: values },
      end,
    );
    expect(await answerOf(events)).toEqual({
      text: 'Second',
      threadId: 't',
      runId: 'r',
      status: 'success',
      usage,
      ...values,
    });
    const taken = told(
      says('a', 'Half'),
      { type: 'messages-tuple', data: { type: 'remove', id: 'a' } },
      says('a', 'Whole'),
      end,
    );
    expect((await answerOf(taken)).text).toBe('Whole');
  });

  test('takes time in proportion to its pieces', verifies('CLI-1'), async () => {
    // With work per piece that grows with what is there, this takes minutes.
    const pieces = 200_000;
    async function* many(): AsyncGenerator<RunEvent> {
      for (let at = 0; at < pieces; at += 1) yield says(at % 2 === 0 ? 'long' : `m${at}`, 'word ');
      yield says('last', 'x');
      yield end;
    }
    expect((await answerOf(many())).text).toBe('x');
  });
});

test('options of a run win over those of the client, key by key; null reaches the server', verifies('CLI-1'), () => {
  const defaults = { modelName: 'a', planMode: true, context: { reasoning_effort: 'low' } };
  const { context, recursionLimit } = settle(defaults, { modelName: 'b', planMode: undefined, thinkingEnabled: false });
  expect(JSON.parse(JSON.stringify(context))).toEqual({
    model_name: 'b',
    is_plan_mode: true,
    thinking_enabled: false,
    reasoning_effort: 'low',
  });
  expect(recursionLimit).toBe(100);
  expect(settle(defaults, { recursionLimit: 7 }).recursionLimit).toBe(7);
});
