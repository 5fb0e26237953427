import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { afterEach, expect, test } from 'vitest';
import { createLeadAgent } from '../lead/lead-agent.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { createModelRegistry } from './registry.ts';

/** As much of OpenAI's Responses API as a turn with one tool needs. */
type Event = Record<string, unknown> & { type: string };
let server: Server | null = null;
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise<void>((resolve) => (server === null ? resolve() : server.close(() => resolve())));
  server = null;
});

const response = (output: unknown[], status = 'completed') => ({
  id: 'resp_1',
  object: 'response',
  model: 'gpt-test',
  status,
  output,
  usage: { input_tokens: 9, output_tokens: 4, total_tokens: 13 },
});
const text = (words: readonly string[]): Event[] => {
  const part = { type: 'output_text', text: words.join(''), annotations: [] };
  const item = { id: 'msg_1', type: 'message', role: 'assistant', status: 'completed', content: [part] };
  return [
    { type: 'response.created', response: response([], 'in_progress') },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, status: 'in_progress', content: [] } },
    ...words.map((delta) => ({
      type: 'response.output_text.delta',
      item_id: 'msg_1',
      output_index: 0,
      content_index: 0,
      delta,
    })),
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: response([item]) },
  ];
};
const call = (name: string, args: string): Event[] => {
  const item = { id: 'fc_1', type: 'function_call', call_id: 'call_1', name, arguments: args, status: 'completed' };
  return [
    { type: 'response.created', response: response([], 'in_progress') },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, arguments: '', status: 'in_progress' } },
    { type: 'response.function_call_arguments.delta', item_id: 'fc_1', output_index: 0, delta: args.slice(0, 5) },
    { type: 'response.function_call_arguments.delta', item_id: 'fc_1', output_index: 0, delta: args.slice(5) },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: response([item]) },
  ];
};

async function serve(answers: readonly Event[][]): Promise<{ url: string; bodies: Record<string, unknown>[] }> {
  const bodies: Record<string, unknown>[] = [];
  server = createServer((request, reply) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      const events = answers[bodies.length] ?? [];
      bodies.push({ path: request.url, ...(JSON.parse(body) as object) });
      reply.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const event of events) reply.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
      reply.end();
    });
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, bodies };
}

async function play(answers: readonly Event[][]) {
  const { url, bodies } = await serve(answers);
  const surroundings = testSurroundings();
  const models = createModelRegistry({
    entries: [{ name: 'r', use: 'openai', model: 'gpt-test', api_key: 'k', base_url: url, use_responses_api: true }],
    environment: {},
    logger: surroundings.logger,
  });
  const sandboxes = new MemorySandboxes({ exec: ({ command }) => exited(`ran ${command}`) });
  const agent = createLeadAgent({ models, sandboxes, surroundings });
  const attempt = recordedAttempt();
  const graph = await agent.forAttempt(attempt, new MemorySaver());
  return { ...(await drain(graph, { messages: [new HumanMessage('go')] }, attempt)), bodies };
}

test('a turn with a tool over the Responses API', verifies('MOD-5a'), async () => {
  const args = JSON.stringify({ description: 'look', command: 'ls' });
  const { messages, bodies, attempt } = await play([call('bash', args), text(['All ', 'done.'])]);
  expect(messages.map((message) => message.text)).toEqual(['go', '', 'ran ls', 'All done.']);
  expect(bodies.map((body) => body.path)).toEqual(['/v1/responses', '/v1/responses']);
  expect(bodies[1]?.input).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ type: 'function_call', call_id: 'call_1', name: 'bash' }),
      expect.objectContaining({ type: 'function_call_output', call_id: 'call_1', output: 'ran ls' }),
    ]),
  );
  expect(attempt.counted.map(({ inputTokens, outputTokens }) => [inputTokens, outputTokens])).toEqual([
    [9, 4],
    [9, 4],
  ]);
  expect(attempt.pushed.filter((chunk) => chunk.id === messages[3]?.id).length).toBeGreaterThan(1);
});

test('an answer that is cut is asked for again here too', async () => {
  const { messages, attempt } = await play([text(['half', ' way']).slice(0, 3), text(['whole'])]);
  expect(messages.map((message) => message.text)).toEqual(['go', 'whole']);
  expect(attempt.emitted).toMatchObject([{ type: 'llm_error', provider: 'openai' }, { type: 'llm_retry' }]);
});
