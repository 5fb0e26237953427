import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { NO_LOG } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createLeadAgent } from '../lead/lead-agent.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import type { ModelEntry } from './entry.ts';
import { chunkTimeoutOf } from './openai-stream.ts';
import { createModelRegistry } from './registry.ts';

/** Servers with OpenAI's interface, as they were seen to answer: recorded chunks, shortened. */
type Chunk = Record<string, unknown>;
type Body = Record<string, unknown> & { messages: Record<string, unknown>[] };
interface Seen {
  readonly path: string;
  readonly key: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Body;
}

const open = new Set<Server>();
afterEach(async () => {
  for (const server of open) {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  }
  open.clear();
});

/** `'silence'` leaves the stream open without a word. */
async function serve(answers: readonly (readonly (Chunk | 'silence')[])[]) {
  const seen: Seen[] = [];
  const left = Promise.withResolvers<void>();
  const server = createServer((request, reply) => {
    let body = '';
    request.on('data', (piece: Buffer) => {
      body += piece.toString();
    });
    request.on('end', () => {
      const chunks = answers[seen.length] ?? [];
      seen.push({
        path: request.url ?? '',
        key: request.headers.authorization ?? String(request.headers['x-api-key'] ?? ''),
        headers: request.headers,
        body: JSON.parse(body) as Body,
      });
      reply.on('close', () => left.resolve());
      reply.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const chunk of chunks) if (chunk !== 'silence') reply.write(`data: ${JSON.stringify(chunk)}\n\n`);
      if (!chunks.includes('silence')) reply.end('data: [DONE]\n\n');
    });
  });
  open.add(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, left: left.promise };
}

const chunk = (delta: Chunk, finish: string | null = null, more: Chunk = {}): Chunk => ({
  id: 'c1',
  object: 'chat.completion.chunk',
  model: 'm',
  choices: [{ index: 0, delta, finish_reason: finish }],
  ...more,
});
const usage = (prompt: number, completion: number, more: Chunk = {}): Chunk => ({
  usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion, ...more },
});
const args = (command: string) => JSON.stringify({ description: 'look', command });
const done = [chunk({ role: 'assistant', content: 'done' }), chunk({}, 'stop')];

async function play(entry: Partial<ModelEntry>, answers: readonly (readonly (Chunk | 'silence')[])[]) {
  const { url, seen } = await serve(answers);
  const surroundings = testSurroundings();
  const models = createModelRegistry({
    entries: [{ name: 'm', use: 'openai', model: 'm', base_url: `${url}/v1`, ...entry }],
    environment: {},
    logger: surroundings.logger,
  });
  const sandboxes = new MemorySandboxes({ exec: ({ command }) => exited(`ran ${command}`) });
  const attempt = recordedAttempt();
  const graph = await createLeadAgent({ models, sandboxes, surroundings }).forAttempt(attempt, new MemorySaver());
  return { ...(await drain(graph, { messages: [new HumanMessage('go')] }, attempt)), seen };
}

/** Streams one answer of a model by itself. */
async function ask(entry: Partial<ModelEntry>, url: string, environment: Record<string, string> = {}) {
  const registry = createModelRegistry({
    entries: [{ name: 'm', use: 'openai', model: 'm', base_url: url, api_key: 'k', ...entry }],
    environment,
    logger: NO_LOG,
  });
  const { model } = await registry.choose({ name: 'm', reasoningEffort: 'high' });
  for await (const _ of await model.stream([new HumanMessage('hi')])) {
    // Only how it ends and what was asked matter.
  }
}

const assistants = (body: Body | undefined) => (body?.messages ?? []).filter(({ role }) => role === 'assistant');

describe('Gemini', () => {
  const call = (index: number, command: string, id: string, signature?: string): Chunk => ({
    index,
    id,
    type: 'function',
    function: { name: 'bash', arguments: args(command) },
    ...(signature === undefined ? {} : { extra_content: { google: { thought_signature: signature } } }),
  });

  test(
    'the signature of each call goes back on that call, and that of a text on its message',
    verifies('MOD-5c'),
    async () => {
      const { messages, seen } = await play({ use: 'gemini' }, [
        [
          chunk({ role: 'assistant', tool_calls: [call(0, 'ls', 'function-call-1', 'sig-A')] }),
          chunk({ role: 'assistant', tool_calls: [call(0, 'pwd', 'function-call-2')] }, 'stop', usage(5, 3)),
        ],
        // Without ids and all under one index, as its compatible interface also answers.
        [
          chunk({ role: 'assistant', tool_calls: [call(0, 'id', '', 'sig-B')] }),
          chunk({ role: 'assistant', tool_calls: [call(0, 'w', '')] }, 'stop'),
        ],
        [
          chunk({ role: 'assistant', content: 'done', extra_content: { google: { thought_signature: 'sig-C' } } }),
          chunk({}, 'stop'),
        ],
      ]);
      expect(messages.map((message) => message.text)).toEqual([
        'go',
        '',
        'ran ls',
        'ran pwd',
        '',
        'ran id',
        'ran w',
        'done',
      ]);
      const google = (value: string) => ({ google: { thought_signature: value } });
      const [first, second] = assistants(seen[2]?.body);
      const calls = (message: Record<string, unknown> | undefined) => message?.tool_calls as Record<string, unknown>[];
      expect(calls(first).map((item) => item.extra_content)).toEqual([google('sig-A'), undefined]);
      expect(calls(second).map((item) => item.extra_content)).toEqual([google('sig-B'), undefined]);
      // Its answer keeps the mark for the next turn.
      expect(messages.at(-1)?.additional_kwargs.thought_signatures).toEqual({ '': 'sig-C' });
    },
  );

  test('by its own name it is asked at Google, with the key of either variable', verifies('MOD-5c'), async () => {
    const { url, seen } = await serve([done]);
    await ask({ use: 'gemini', api_key: undefined as never, base_url: undefined as never }, '', {
      GOOGLE_API_KEY: 'g-key',
      GEMINI_BASE_URL: `${url}/v1beta/openai`,
    });
    expect(seen).toMatchObject([{ path: '/v1beta/openai/chat/completions', key: 'Bearer g-key' }]);
  });
});

describe('vLLM and Ollama', () => {
  test(
    'vLLM: totals that grow are counted once, reasoning is shown and goes back under its name',
    verifies('MOD-5e'),
    async () => {
      const tool = (piece: Chunk) => ({ tool_calls: [{ index: 0, ...piece }] });
      const { messages, seen, attempt } = await play({ use: 'vllm.chat:VllmChatModel' }, [
        [
          chunk({ role: 'assistant', content: '' }, null, usage(10, 0)),
          chunk({ reasoning: 'I ' }, null, usage(10, 1)),
          chunk({ reasoning: 'look.' }, null, usage(10, 2)),
          chunk(
            tool({ id: 'call-1', type: 'function', function: { name: 'bash', arguments: '' } }),
            null,
            usage(10, 3),
          ),
          chunk(tool({ function: { arguments: args('ls') } }), null, usage(10, 4)),
          chunk({}, 'tool_calls', usage(10, 5)),
        ],
        done,
      ]);
      expect(messages.map((message) => message.text)).toEqual(['go', '', 'ran ls', 'done']);
      expect(attempt.counted.map(({ inputTokens, outputTokens }) => [inputTokens, outputTokens])).toEqual([
        [10, 5],
        [0, 0],
      ]);
      expect(messages[1]?.response_metadata.usage).toEqual({
        prompt_tokens: 10,
        completion_tokens: 5,
        total_tokens: 15,
      });
      expect(messages[1]?.additional_kwargs.reasoning_content).toBe('I look.');
      expect(assistants(seen[1]?.body)).toMatchObject([{ reasoning: 'I look.' }]);
      expect(assistants(seen[1]?.body)[0]).not.toHaveProperty('reasoning_content');
    },
  );

  test(
    'Ollama: calls under one index stay apart; no key is needed, and its address may be without /v1',
    verifies('MOD-5e'),
    async () => {
      const call = (id: string, command: string) => ({
        tool_calls: [{ index: 0, id, type: 'function', function: { name: 'bash', arguments: args(command) } }],
      });
      const { messages, seen, attempt } = await play({ use: 'langchain_ollama:ChatOllama' }, [
        [
          chunk({ role: 'assistant', content: '', reasoning: 'Hm.' }),
          chunk(call('call_a', 'ls')),
          chunk(call('call_b', 'pwd'), 'tool_calls'),
          { id: 'c1', choices: [], ...usage(7, 2) },
        ],
        done,
      ]);
      expect(messages.map((message) => message.text)).toEqual(['go', '', 'ran ls', 'ran pwd', 'done']);
      expect(attempt.counted[0]).toMatchObject({ inputTokens: 7, outputTokens: 2 });
      expect(messages[1]?.additional_kwargs.reasoning_content).toBe('Hm.');
      expect(seen.map(({ path, key }) => [path, key])).toEqual([
        ['/v1/chat/completions', 'Bearer none'],
        ['/v1/chat/completions', 'Bearer none'],
      ]);
      const bare = await serve([done]);
      await ask({ use: 'ollama' }, `${bare.url}/`);
      expect(bare.seen[0]?.path).toBe('/v1/chat/completions');
    },
  );
});

test(
  'DeepSeek: its own address and key, hits of its cache, reasoning back on the call',
  verifies('MOD-5d'),
  async () => {
    const { messages, seen, attempt } = await play({ use: 'deepseek' }, [
      [
        chunk({ role: 'assistant', content: null, reasoning_content: 'I look.' }),
        chunk({
          tool_calls: [{ index: 0, id: 'd1', type: 'function', function: { name: 'bash', arguments: args('ls') } }],
        }),
        chunk({ content: '', reasoning_content: null }, 'tool_calls', usage(100, 5, { prompt_cache_hit_tokens: 64 })),
      ],
      done,
    ]);
    const answer = messages[1] as AIMessage;
    expect(AIMessage.isInstance(answer) && answer.usage_metadata).toMatchObject({
      input_tokens: 100,
      input_token_details: { cache_read: 64 },
    });
    expect(attempt.counted[0]).toMatchObject({ inputTokens: 100, cacheReadTokens: 64 });
    expect(assistants(seen[1]?.body)).toMatchObject([{ reasoning_content: 'I look.' }]);
  },
);

test(
  'Mistral: nine letters or digits as ids, pairs intact, usage without being asked',
  verifies('MOD-5a'),
  async () => {
    const call = {
      index: 0,
      id: 'call_of-another',
      type: 'function',
      function: { name: 'bash', arguments: args('ls') },
    };
    const { messages, seen, attempt } = await play({ use: 'langchain_mistralai:ChatMistralAI', api_key: 'k' }, [
      [chunk({ role: 'assistant', content: '', tool_calls: [call] }, 'tool_calls', usage(9, 4))],
      done,
    ]);
    const [asked, answer] = (seen[1]?.body.messages ?? []).slice(-2);
    const [sent] = (asked?.tool_calls ?? []) as Record<string, unknown>[];
    expect(sent?.id).toMatch(/^[A-Za-z0-9]{9}$/);
    expect(answer).toMatchObject({ role: 'tool', tool_call_id: sent?.id, content: 'ran ls' });
    expect(seen[0]?.body).not.toHaveProperty('stream_options');
    expect(attempt.counted[0]).toMatchObject({ inputTokens: 9, outputTokens: 4 });
    // The history keeps what the provider said.
    expect((messages[1] as AIMessage).tool_calls?.[0]?.id).toBe('call_of-another');
    const own = await serve([done]);
    await ask({ use: 'mistral', api_key: undefined as never, base_url: undefined as never }, '', {
      MISTRAL_API_KEY: 'mi-key',
      MISTRAL_BASE_URL: `${own.url}/v1`,
    });
    expect(own.seen).toMatchObject([{ path: '/v1/chat/completions', key: 'Bearer mi-key' }]);
  },
);

describe('usage and silence', () => {
  test('usage is asked for unless an entry says no', verifies('MOD-4'), async () => {
    const { url, seen } = await serve([done, done]);
    await ask({}, `${url}/v1`);
    await ask({ stream_usage: false }, `${url}/v1`);
    expect(seen.map(({ body }) => body.stream_options)).toEqual([{ include_usage: true }, undefined]);
  });

  test('240 s between two pieces, or what the entry says; 0 = any time', verifies('MOD-4'), () => {
    expect([undefined, null, 3, 0].map(chunkTimeoutOf)).toEqual([240_000, 240_000, 3_000, null]);
    expect(chunkTimeoutOf(1e9)).toBeLessThan(2 ** 31);
  });

  test('a stream that goes silent is ended and fails as such', verifies('MOD-4'), async () => {
    const silent = [chunk({ role: 'assistant', content: 'half' }), 'silence' as const];
    const chat = await serve([silent]);
    await expect(ask({ stream_chunk_timeout: 0.05 }, `${chat.url}/v1`)).rejects.toThrow(/stream chunk timed out/);
    // The socket too.
    await chat.left;
    const responses = await serve([[{ type: 'response.created', response: { id: 'r', output: [] } }, 'silence']]);
    await expect(ask({ stream_chunk_timeout: 0.05, use_responses_api: true }, `${responses.url}/v1`)).rejects.toThrow(
      /stream chunk timed out/,
    );
    await responses.left;
  });

  test('other families are never given that time', verifies('MOD-4'), async () => {
    const { url, seen } = await serve([[]]);
    await ask({ use: 'anthropic', stream_chunk_timeout: 0.05 }, url).catch(() => {});
    expect(JSON.stringify(seen[0]?.body)).not.toContain('timeout');
  });
});

test('each interface gets the effort where it looks for it', verifies('MOD-3'), async () => {
  const { url, seen } = await serve([done, [], []]);
  const effort = { supports_reasoning_effort: true };
  await ask(effort, `${url}/v1`);
  await ask({ ...effort, use_responses_api: true, model: 'gpt-5' }, `${url}/v1`).catch(() => {});
  await ask({ ...effort, use: 'anthropic', model: 'claude-opus-4-5' }, url).catch(() => {});
  expect(seen.map(({ body }) => body.reasoning_effort ?? body.reasoning ?? body.output_config)).toEqual([
    'high',
    { effort: 'high' },
    { effort: 'high' },
  ]);
  expect(seen.slice(1).some(({ body }) => 'reasoning_effort' in body)).toBe(false);
});

test(
  'a token of a login goes to Anthropic as a bearer, and one that lies in the environment to no other address',
  verifies('MOD-5b'),
  async () => {
    const { url, seen } = await serve([[], [], []]);
    vi.stubEnv('ANTHROPIC_AUTH_TOKEN', 'token-of-another-server');
    try {
      await ask({ use: 'anthropic', api_key: 'sk-ant-oat01-token' }, url).catch(() => {});
      await ask({ use: 'anthropic', api_key: 'sk-ant-api03-key' }, url).catch(() => {});
    } finally {
      vi.unstubAllEnvs();
    }
    const sent = seen.map(({ headers }) => [
      headers.authorization,
      headers['x-api-key'],
      String(headers['anthropic-beta'] ?? '').includes('oauth-2025-04-20'),
    ]);
    expect(sent).toEqual([
      ['Bearer sk-ant-oat01-token', undefined, true],
      [undefined, 'sk-ant-api03-key', false],
    ]);
  },
);
