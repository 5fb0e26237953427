import type { StructuredToolInterface } from '@langchain/core/tools';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { search } from './deferred.ts';

const tool = (name: string, description: string): StructuredToolInterface =>
  ({ name, description }) as unknown as StructuredToolInterface;

test('an expression with one repetition is one; no query makes the search slow', verifies('TOOL-12'), () => {
  const tools = [tool('mail_send', 'Sends a message'), tool('maps_route', 'Finds a way')];
  expect(search(tools, 'send.*message').map(({ name }) => name)).toEqual(['mail_send']);
  const many = Array.from({ length: 256 }, (_, at) => tool(`server_tool_${at}`, 'a'.repeat(4_000)));
  const begun = performance.now();
  for (const query of ['.*.*zq', 'a*a*zq', `${'a|'.repeat(400)}zq`, 'aaa '.repeat(250)]) search(many, query);
  expect(performance.now() - begun).toBeLessThan(2_500);
});
