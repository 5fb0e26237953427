import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { type Script, type ScriptedProvider, startScriptedProvider, turns } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import { createLeadAgent } from '../lead/lead-agent.ts';
import { ERROR_FALLBACK } from '../middleware/llm-errors.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import type { ModelEntry } from './entry.ts';
import { createModelRegistry } from './registry.ts';

let provider: ScriptedProvider | null = null;
afterEach(async () => {
  await provider?.close();
  provider = null;
});

type Api = 'openai' | 'anthropic';
const APIS: readonly Api[] = ['openai', 'anthropic'];

async function setUp(api: Api, script: Script, entry: Partial<ModelEntry> = {}, demandReasoning = false) {
  provider = await startScriptedProvider({ script, apiKey: 'test-key-123456', demandReasoning });
  const surroundings = testSurroundings();
  const models = createModelRegistry({
    entries: [{ name: 'scripted', use: api, model: api === 'openai' ? 'gpt-test' : 'claude-test', ...entry }],
    environment: {
      OPENAI_API_KEY: 'test-key-123456',
      OPENAI_BASE_URL: provider.openAiUrl,
      ANTHROPIC_API_KEY: 'test-key-123456',
      ANTHROPIC_BASE_URL: provider.url,
    },
    logger: surroundings.logger,
  });
  const sandboxes = new MemorySandboxes({ exec: ({ command }) => exited(`ran ${command}`) });
  const agent = createLeadAgent({ models, sandboxes, surroundings });
  const saver = new MemorySaver();
  const start = async (attempt = recordedAttempt()) => ({ attempt, graph: await agent.forAttempt(attempt, saver) });
  return { provider, start, surroundings };
}

const bash = (command: string) => ({ name: 'bash', args: { description: 'look', command } });
const say = (text: string) => ({ messages: [new HumanMessage(text)] });

describe.each(APIS)('%s over HTTP', (api) => {
  test(
    'a turn with parallel tools: streamed, counted, and every request valid',
    verifies('MOD-5a', 'MOD-5b'),
    async () => {
      const { provider: server, start } = await setUp(
        api,
        turns([
          {
            text: 'I look around first.',
            toolCalls: [bash('ls'), bash('pwd')],
            usage: { inputTokens: 11, outputTokens: 7 },
          },
          { text: 'All done.', usage: { inputTokens: 20, outputTokens: 3 } },
          { text: 'Again.' },
        ]),
      );
      const first = await start();
      const { messages } = await drain(first.graph, say('go'), first.attempt);
      expect(messages.map((message) => [message.type, message.text])).toEqual([
        ['human', 'go'],
        ['ai', 'I look around first.'],
        ['tool', 'ran ls'],
        ['tool', 'ran pwd'],
        ['ai', 'All done.'],
      ]);
      expect(first.attempt.counted.map(({ inputTokens, outputTokens }) => [inputTokens, outputTokens])).toEqual([
        [11, 7],
        [20, 3],
      ]);
      const ofFirst = first.attempt.pushed.filter((chunk) => chunk.id === messages[1]?.id);
      expect(ofFirst.length).toBeGreaterThan(3);
      const second = await start(recordedAttempt({ attempt: 2 }));
      await drain(second.graph, say('more'), second.attempt);
      expect(server.requests().map((request) => [request.status, request.refused])).toEqual([
        [200, null],
        [200, null],
        [200, null],
      ]);
    },
  );

  test('an abort ends the socket, and the next request is valid', async () => {
    const { provider: server, start } = await setUp(api, (request) =>
      request.messages.some((message) => message.text.includes('second'))
        ? { text: 'fine' }
        : { text: 'one two three four', fault: { kind: 'hang', afterPieces: 1 } },
    );
    const { attempt, graph } = await start();
    const running = drain(graph, say('first'), attempt);
    await server.waitFor((entry) => entry.sent > 0);
    attempt.abort();
    await expect(running).rejects.toThrow();
    await server.waitFor((entry) => entry.clientLeft);
    expect(await attempt.effects.stopped(5_000)).toEqual([]);
    const next = await start(recordedAttempt({ attempt: 2 }));
    const { messages } = await drain(next.graph, say('second'), next.attempt);
    expect(messages.map((message) => message.text)).toEqual(['first', 'second', 'fine']);
    expect(server.requests().at(-1)?.refused).toBeNull();
  });

  test('a busy provider is asked again after the time it names', verifies('MW-8a'), async () => {
    const { start, surroundings } = await setUp(
      api,
      turns([[{ fault: { kind: 'status', status: 429, retryAfter: 7 } }, { text: 'now' }]]),
    );
    const { attempt, graph } = await start();
    const { messages } = await drain(graph, say('go'), attempt);
    expect(messages.at(-1)?.text).toBe('now');
    expect(surroundings.sleeps).toEqual([7_000]);
    expect(attempt.emitted).toMatchObject([
      { type: 'llm_error', provider: api, kind: 'transient', status: 429, attempt: 1, retried: true },
      { type: 'llm_retry', attempt: 1, max_attempts: 3, wait_ms: 7_000 },
    ]);
    expect(attempt.failures).toEqual([]);
  });

  test(
    'an answer whose connection is cut, or ends as if it were whole, is no answer: it is asked for again',
    verifies('MOD-5a', 'MOD-5b'),
    async () => {
      for (const kind of ['cut', 'quiet-end'] as const) {
        const { start } = await setUp(
          api,
          turns([[{ text: 'half of an answer', fault: { kind, afterPieces: 1 } }, { text: 'the whole answer' }]]),
        );
        const { attempt, graph } = await start();
        const { messages } = await drain(graph, say('go'), attempt);
        expect(messages.map((message) => message.text)).toEqual(['go', 'the whole answer']);
        expect(attempt.emitted).toMatchObject([{ type: 'llm_error' }, { type: 'llm_retry' }]);
      }
    },
  );

  test(
    'a provider that stays broken ends in a readable message and a failed run',
    verifies('MW-8b', 'MOD-5b'),
    async () => {
      const { provider: server, start } = await setUp(api, () => ({ fault: { kind: 'status', status: 503 } }));
      const { attempt, graph } = await start();
      const { messages } = await drain(graph, say('go'), attempt);
      expect(messages.at(-1)?.text).toMatch(/could not be reached or is too busy/);
      expect(messages.at(-1)?.additional_kwargs).toMatchObject({ [ERROR_FALLBACK]: true, error_reason: 'transient' });
      expect(attempt.failures).toHaveLength(1);
      // The clients themselves retry nothing.
      expect(server.requests()).toHaveLength(3);
    },
  );

  test('a refused key is final and says what to do; the key is not shown', verifies('MW-8b'), async () => {
    const { start, surroundings } = await setUp(api, () => ({ text: 'never' }), { api_key: 'sk-wrong-key-987654' });
    const { attempt, graph } = await start();
    const { messages } = await drain(graph, say('go'), attempt);
    expect(messages.at(-1)?.text).toMatch(/does not accept the configured key/);
    expect(JSON.stringify(messages)).not.toContain('987654');
    expect(surroundings.sleeps).toEqual([]);
  });

  test('calls with malformed arguments or repeated ids are answered, and the request after them is valid', async () => {
    const { provider: server, start } = await setUp(
      api,
      turns([
        {
          toolCalls: [
            { ...bash('ls'), id: 'same' },
            { ...bash('pwd'), id: 'same' },
            { name: 'write_file', args: '{"path": "/mnt' },
          ],
        },
        { text: 'sorry' },
      ]),
    );
    const { attempt, graph } = await start();
    const { messages } = await drain(graph, say('go'), attempt);
    expect(messages.at(-1)?.text).toBe('sorry');
    const results = messages.filter(ToolMessage.isInstance).map((message) => message.text);
    expect(results.toSorted()).toEqual([expect.stringContaining('not valid JSON'), 'ran ls', 'ran pwd']);
    expect(server.requests().map((request) => request.refused)).toEqual([null, null]);
  });
});

test(
  'reasoning alone is no answer: the model is asked once more, and the requests stay valid',
  verifies('MW-32'),
  async () => {
    const { provider: server, start } = await setUp('openai', (request) => {
      const last = request.messages.at(-1);
      if (last?.text.includes('answer was empty')) return { text: 'visible' };
      return last?.role === 'tool' ? { reasoning: 'only thinking' } : { toolCalls: [bash('ls')] };
    });
    const { attempt, graph } = await start();
    const { messages } = await drain(graph, say('go'), attempt);
    expect(messages.map((message) => message.text)).toEqual(['go', '', 'ran ls', 'visible']);
    expect(server.requests().map((request) => request.refused)).toEqual([null, null, null]);
  },
);

test('reasoning goes back to a provider that demands it', verifies('MOD-5d'), async () => {
  const { provider: server, start } = await setUp(
    'openai',
    turns([{ reasoning: 'I should look.', toolCalls: [bash('ls')] }, { text: 'done' }]),
    {},
    true,
  );
  const { attempt, graph } = await start();
  const { messages } = await drain(graph, say('go'), attempt);
  expect(messages.at(-1)?.text).toBe('done');
  expect(messages[1]?.additional_kwargs.reasoning_content).toBe('I should look.');
  expect(server.requests().map((request) => request.refused)).toEqual([null, null]);
  expect(attempt.pushed.some((chunk) => JSON.stringify(chunk).includes('reasoning_content'))).toBe(true);
});

test('a server that reports no usage costs nothing extra: no tokenizer is fetched', async () => {
  const { start } = await setUp('openai', turns([{ text: 'quick', usage: null }]));
  const { attempt, graph } = await start();
  const fetched: string[] = [];
  const original = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    fetched.push(String(input instanceof Request ? input.url : input));
    return original(input, init);
  };
  try {
    const { messages } = await drain(graph, say('go'), attempt);
    expect(messages.at(-1)?.text).toBe('quick');
  } finally {
    globalThis.fetch = original;
  }
  expect(fetched.every((url) => url.includes('127.0.0.1'))).toBe(true);
});
