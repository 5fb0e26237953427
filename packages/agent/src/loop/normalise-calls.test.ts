import { AIMessage } from '@langchain/core/messages';
import { expect, test } from 'vitest';
import { normaliseCalls } from './normalise-calls.ts';

const random = { uuid: () => crypto.randomUUID(), next: () => 0 };

test('ids that calls are given are distinct, and short enough for every provider', () => {
  const call = (id: string | undefined) => ({ name: 'bash', args: {}, id: id as string, type: 'tool_call' as const });
  const message = new AIMessage({ content: '', tool_calls: [call('a'), call('a'), call(undefined), call('')] });
  const ids = normaliseCalls(message, random).tool_calls?.map(({ id }) => id ?? '') ?? [];
  expect(ids[0]).toBe('a');
  expect(new Set(ids).size).toBe(4);
  for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{1,40}$/);
});
