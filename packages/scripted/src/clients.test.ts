import { ChatAnthropic } from '@langchain/anthropic';
import { AIMessage, type AIMessageChunk, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { afterEach, describe, expect, test } from 'vitest';
import { type Script, type Turn, turns } from './script.ts';
import { type ScriptedProvider, startScriptedProvider } from './server.ts';

const open: ScriptedProvider[] = [];
afterEach(async () => {
  for (const provider of open.splice(0)) await provider.close();
});

async function start(
  script: Script | readonly (Turn | readonly Turn[])[],
  options: { demandReasoning?: boolean } = {},
) {
  const provider = await startScriptedProvider({
    script: typeof script === 'function' ? script : turns(script),
    ...options,
  });
  open.push(provider);
  return provider;
}

const openAi = (provider: ScriptedProvider, extra: object = {}) =>
  new ChatOpenAI({ model: 'm', apiKey: 'k', maxRetries: 0, configuration: { baseURL: provider.openAiUrl }, ...extra });
const anthropic = (provider: ScriptedProvider, extra: object = {}) =>
  new ChatAnthropic({
    model: 'm',
    apiKey: 'k',
    maxRetries: 0,
    anthropicApiUrl: provider.url,
    maxTokens: 4_000,
    ...extra,
  });

const TOOL = {
  type: 'function' as const,
  function: {
    name: 'bash',
    description: 'Runs a command.',
    parameters: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
  },
};

async function collect(stream: AsyncIterable<AIMessageChunk>): Promise<{ whole: AIMessageChunk; count: number }> {
  let whole: AIMessageChunk | undefined;
  let count = 0;
  for await (const chunk of stream) {
    whole = whole === undefined ? chunk : whole.concat(chunk);
    count += 1;
  }
  if (whole === undefined) throw new Error('The stream was empty.');
  return { whole, count };
}

const CALLS: Turn = {
  text: 'I look — 🦌 — first.',
  reasoning: 'They want to see the files.',
  toolCalls: [
    { name: 'bash', args: { command: 'ls -la /mnt/user-data && echo "a long enough command"' } },
    { name: 'bash', args: { command: 'pwd' } },
  ],
  usage: { inputTokens: 11, outputTokens: 7 },
  pieceSize: 3,
};

const CLIENTS = { OpenAI: openAi, Anthropic: anthropic };

describe.each([
  ['OpenAI', 'streamed'],
  ['OpenAI', 'whole'],
  ['Anthropic', 'streamed'],
  ['Anthropic', 'whole'],
] as const)('the %s client, %s', (name, form) => {
  const make = CLIENTS[name];

  test('gets text, parallel calls and usage, and may answer the calls', async () => {
    const provider = await start([CALLS, { text: 'Done.' }]);
    const model = make(provider).bindTools([TOOL]);
    const history = [new SystemMessage('Be short.'), new HumanMessage('list')];
    let first: AIMessage | AIMessageChunk;
    if (form === 'streamed') {
      const { whole, count } = await collect(await model.stream(history));
      expect(count).toBeGreaterThan(8);
      first = whole;
    } else {
      first = await model.invoke(history);
    }
    expect(first.text).toBe('I look — 🦌 — first.');
    expect(first.tool_calls?.map((call) => [call.name, call.args])).toEqual([
      ['bash', { command: 'ls -la /mnt/user-data && echo "a long enough command"' }],
      ['bash', { command: 'pwd' }],
    ]);
    expect(first.usage_metadata).toMatchObject({ input_tokens: 11, output_tokens: 7 });
    const ids = (first.tool_calls ?? []).map((call) => call.id ?? '');
    expect(new Set(ids).size).toBe(2);

    const results = ids.map((id) => new ToolMessage({ content: 'ok', tool_call_id: id }));
    const second = await model.invoke([
      ...history,
      new AIMessage({ content: first.text, tool_calls: first.tool_calls ?? [] }),
      ...results,
    ]);
    expect(second.text).toBe('Done.');
    expect(provider.requests().map((entry) => [entry.status, entry.done, entry.refused])).toEqual([
      [200, true, null],
      [200, true, null],
    ]);
  });

  test('learns status and Retry-After of a refusal, and the next attempt gets the next turn', async () => {
    const provider = await start([[{ fault: { kind: 'status', status: 429, retryAfter: 2 } }, { text: 'Now.' }]]);
    const ask = async () =>
      form === 'streamed' ? (await collect(await make(provider).stream('hi'))).whole : make(provider).invoke('hi');
    const error = await ask().catch((reason: unknown) => reason);
    expect(error).toMatchObject({ status: 429 });
    expect((error as { headers: Headers }).headers.get('retry-after')).toBe('2');
    expect((await ask()).text).toBe('Now.');
    expect(provider.requests().map((entry) => entry.attempt)).toEqual([1, 2]);
  });

  test.each([500, 502, 503, 529])('sees status %i', async (status) => {
    const provider = await start([{ fault: { kind: 'status', status } }]);
    const ask = async () =>
      form === 'streamed' ? collect(await make(provider).stream('hi')) : make(provider).invoke('hi');
    await expect(ask()).rejects.toMatchObject({ status });
  });

  test.each([
    ['a cut', { kind: 'cut', afterPieces: 2 }],
    ['a cut before anything', { kind: 'cut', afterPieces: 0 }],
    ['an error after a good beginning', { kind: 'error-event', afterPieces: 1 }],
    ['JSON that does not parse', { kind: 'malformed-body' }],
  ] as const)('fails on %s', async (_what, fault) => {
    const provider = await start([{ text: 'This text is long enough for pieces.', fault }]);
    const ask = async () =>
      form === 'streamed' ? collect(await make(provider).stream('hi')) : make(provider).invoke('hi');
    await expect(ask()).rejects.toThrow();
  });

  test('leaves a hanging answer, and the provider sees that', async () => {
    const provider = await start([{ text: 'This never ends well.', fault: { kind: 'hang', afterPieces: 1 } }]);
    const leave = new AbortController();
    const model = make(provider);
    const asking = (
      form === 'streamed'
        ? model.stream('hi', { signal: leave.signal }).then(collect)
        : model.invoke('hi', { signal: leave.signal })
    ).then(
      () => 'answered',
      () => 'left',
    );
    await provider.waitFor((entry) => (form === 'streamed' ? entry.sent === 1 : entry.number === 1));
    leave.abort();
    expect(await asking).toBe('left');
    const seen = await provider.waitFor((entry) => entry.done);
    expect(seen.clientLeft).toBe(true);
  });

  test('gets an empty reply as one', async () => {
    const provider = await start([{}]);
    const reply =
      form === 'streamed'
        ? (await collect(await make(provider).stream('hi'))).whole
        : await make(provider).invoke('hi');
    expect(reply.text).toBe('');
    expect(reply.tool_calls ?? []).toEqual([]);
  });
});

describe('reasoning', () => {
  test('reaches the OpenAI client as reasoning_content, alone too', async () => {
    const provider = await start([{ reasoning: 'Only a thought.' }]);
    const { whole } = await collect(await openAi(provider).stream('hi'));
    expect(whole.additional_kwargs.reasoning_content).toBe('Only a thought.');
    expect(whole.text).toBe('');
  });

  test('reaches the Anthropic client as a signed block that must come back', async () => {
    const provider = await start([CALLS, { text: 'Done.' }]);
    const model = anthropic(provider, { thinking: { type: 'enabled', budget_tokens: 1024 } }).bindTools([TOOL]);
    const { whole } = await collect(await model.stream('hi'));
    expect(JSON.stringify(whole.content)).toContain('They want to see the files.');
    const results = (whole.tool_calls ?? []).map(
      (call) => new ToolMessage({ content: 'ok', tool_call_id: call.id ?? '' }),
    );
    const kept = await model.invoke([new HumanMessage('hi'), whole, ...results]);
    expect(kept.text).toBe('Done.');
    const dropped = new AIMessage({ content: whole.text, tool_calls: whole.tool_calls ?? [] });
    await expect(model.invoke([new HumanMessage('hi'), dropped, ...results])).rejects.toThrow(/thinking/);
  });

  test('is demanded back where the provider does so', async () => {
    const provider = await start([CALLS, { text: 'Done.' }], { demandReasoning: true });
    const model = openAi(provider).bindTools([TOOL]);
    const first = await model.invoke('hi');
    const results = (first.tool_calls ?? []).map(
      (call) => new ToolMessage({ content: 'ok', tool_call_id: call.id ?? '' }),
    );
    const dropped = new AIMessage({ content: first.text, tool_calls: first.tool_calls ?? [] });
    await expect(model.invoke([new HumanMessage('hi'), dropped, ...results])).rejects.toMatchObject({ status: 400 });
  });
});

describe('odd tool calls reach the OpenAI client', () => {
  test('malformed arguments become an invalid call', async () => {
    const provider = await start([{ toolCalls: [{ name: 'bash', args: '{"command": "ls' }] }]);
    const reply = await openAi(provider).invoke('hi');
    expect(reply.tool_calls).toEqual([]);
    expect(reply.invalid_tool_calls).toMatchObject([{ name: 'bash', args: '{"command": "ls' }]);
  });

  test('null and repeated ids stay as they are', async () => {
    const provider = await start([
      {
        toolCalls: [
          { name: 'bash', args: { command: 'a' }, id: null },
          { name: 'bash', args: { command: 'b' }, id: 'same' },
          { name: 'bash', args: { command: 'c' }, id: 'same' },
        ],
      },
    ]);
    const reply = await openAi(provider).invoke('hi');
    expect((reply.tool_calls ?? []).map((call) => call.id ?? null)).toEqual([null, 'same', 'same']);
  });
});
