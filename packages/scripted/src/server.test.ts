import { afterEach, describe, expect, test } from 'vitest';
import { signThinking } from './anthropic/request.ts';
import { byCaller, type Script, turns } from './script.ts';
import { type ScriptedProvider, type ScriptedProviderOptions, startScriptedProvider } from './server.ts';

const open: ScriptedProvider[] = [];
afterEach(async () => {
  for (const provider of open.splice(0)) await provider.close();
});

async function start(options: Partial<ScriptedProviderOptions> = {}) {
  const provider = await startScriptedProvider({ script: () => ({ text: 'ok' }), ...options });
  open.push(provider);
  return provider;
}

const USER = { role: 'user', content: 'hi' };
const call = (id: unknown, args = '{}') => ({ id, type: 'function', function: { name: 'bash', arguments: args } });
const assistant = (...calls: unknown[]) => ({ role: 'assistant', content: null, tool_calls: calls });
const tool = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'out' });

describe('chat completions refuses what the real service refuses', () => {
  const ask = async (body: object) => {
    const provider = await start();
    const response = await fetch(`${provider.openAiUrl}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'm', ...body }),
    });
    return { status: response.status, body: (await response.json()) as { error?: { message: string; type: string } } };
  };

  test.each<[string, object, RegExp]>([
    ['no messages', { messages: [] }, /at least one/],
    ['an unknown role', { messages: [{ role: 'human', content: 'hi' }] }, /no role/],
    ['a user without content', { messages: [{ role: 'user', content: null }] }, /content/],
    ['an assistant with nothing', { messages: [USER, { role: 'assistant', content: null }] }, /content or tool_calls/],
    [
      'an empty list of calls',
      { messages: [USER, { role: 'assistant', content: 'x', tool_calls: [] }] },
      /empty array/,
    ],
    ['a call without an answer at the end', { messages: [USER, assistant(call('a'))] }, /must be followed.*a/],
    [
      'a call without an answer in the middle',
      { messages: [USER, assistant(call('a'), call('b')), tool('a'), USER] },
      /missing: b/,
    ],
    ['an answer to nothing', { messages: [USER, tool('a')] }, /"a" is none that is open/],
    [
      'an answer to an older call',
      { messages: [USER, assistant(call('a')), tool('a'), USER, tool('a')] },
      /none that is open/,
    ],
    ['two answers to one call', { messages: [USER, assistant(call('a')), tool('a'), tool('a')] }, /none that is open/],
    ['a null id', { messages: [USER, assistant(call(null)), tool('a')] }, /id must be text/],
    ['one id twice', { messages: [USER, assistant(call('a'), call('a')), tool('a'), tool('a')] }, /twice/],
    ['arguments that are no JSON', { messages: [USER, assistant(call('a', '{"x')), tool('a')] }, /JSON/],
    [
      'stream options without a stream',
      { messages: [USER], stream_options: { include_usage: true } },
      /stream_options/,
    ],
    ['a tool choice without tools', { messages: [USER], tool_choice: 'auto' }, /tool_choice/],
    ['an empty list of tools', { messages: [USER], tools: [] }, /empty array/],
    [
      'a tool name with a space',
      { messages: [USER], tools: [{ type: 'function', function: { name: 'a b', parameters: {} } }] },
      /does not fit/,
    ],
  ])('%s', async (_what, body, message) => {
    const answer = await ask(body);
    expect(answer.status).toBe(400);
    expect(answer.body.error?.type).toBe('invalid_request_error');
    expect(answer.body.error?.message).toMatch(message);
  });

  test('and takes what it takes', async () => {
    const answer = await ask({
      messages: [
        { role: 'system', content: 's' },
        USER,
        USER,
        assistant(call('a'), call('b')),
        tool('b'),
        tool('a'),
        {
          role: 'user',
          content: [
            { type: 'text', text: 'x' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
          ],
        },
      ],
    });
    expect(answer.status).toBe(200);
  });
});

describe('messages refuses what the real service refuses', () => {
  const ask = async (body: object, headers: Record<string, string> = { 'anthropic-version': '2023-06-01' }) => {
    const provider = await start();
    const response = await fetch(`${provider.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ model: 'm', max_tokens: 4000, ...body }),
    });
    return {
      status: response.status,
      body: (await response.json()) as { type: string; error?: { message: string; type: string } },
    };
  };
  const tools = [{ name: 'bash', input_schema: { type: 'object' } }];
  const use = (id: string) => ({ type: 'tool_use', id, name: 'bash', input: {} });
  const result = (id: string) => ({ type: 'tool_result', tool_use_id: id, content: 'out' });
  const text = (value: string) => ({ type: 'text', text: value });
  const turn = (role: string, ...content: unknown[]) => ({ role, content });
  const thinking = { type: 'enabled', budget_tokens: 1024 };

  test.each<[string, object, RegExp]>([
    ['no max_tokens', { messages: [USER], max_tokens: undefined }, /max_tokens/],
    ['an assistant first', { messages: [turn('assistant', text('x'))] }, /first message/],
    ['a system role inside', { messages: [USER, turn('system', text('x'))] }, /'user' or 'assistant'/],
    ['empty content', { messages: [USER, turn('assistant'), USER] }, /non-empty content/],
    ['an empty text block', { messages: [turn('user', text(''))] }, /must be non-empty/],
    ['only white space', { messages: [turn('user', text(' \n'))] }, /non-whitespace/],
    [
      'a call without a result',
      { messages: [USER, turn('assistant', use('a')), USER], tools },
      /without `tool_result`/,
    ],
    ['a call at the end', { messages: [USER, turn('assistant', use('a'))], tools }, /without `tool_result`/],
    ['a result of nothing', { messages: [turn('user', result('a'))], tools }, /unexpected `tool_use_id`/],
    [
      'results after text',
      { messages: [USER, turn('assistant', use('a')), turn('user', text('x'), result('a'))], tools },
      /come before/,
    ],
    [
      'an id twice in the conversation',
      {
        messages: [
          USER,
          turn('assistant', use('a')),
          turn('user', result('a')),
          turn('assistant', use('a')),
          turn('user', result('a')),
        ],
        tools,
      },
      /must be unique/,
    ],
    [
      'an id with a colon',
      { messages: [USER, turn('assistant', use('a:b')), turn('user', result('a:b'))], tools },
      /pattern/,
    ],
    [
      'calls without tools',
      { messages: [USER, turn('assistant', use('a')), turn('user', result('a'))] },
      /must define tools/,
    ],
    ['a tool without a schema', { messages: [USER], tools: [{ name: 'x' }] }, /input_schema/],
    ['one tool twice', { messages: [USER], tools: [...tools, ...tools] }, /unique/],
    ['white space at the end of a prefill', { messages: [USER, turn('assistant', text('x '))] }, /trailing whitespace/],
    ['a small thinking budget', { messages: [USER], thinking: { type: 'enabled', budget_tokens: 10 } }, /1024/],
    ['a temperature while thinking', { messages: [USER], thinking, temperature: 0 }, /temperature/],
    [
      'calls without their thinking',
      { messages: [USER, turn('assistant', use('a')), turn('user', result('a'))], tools, thinking },
      /must start with a thinking block/,
    ],
    [
      'a forged thinking block',
      { messages: [USER, turn('assistant', { type: 'thinking', thinking: 'x', signature: 'y' }, text('z')), USER] },
      /signature/,
    ],
  ])('%s', async (_what, body, message) => {
    const answer = await ask(body);
    expect(answer.body.error?.message).toMatch(message);
    expect(answer.status).toBe(400);
    expect(answer.body.error?.type).toBe('invalid_request_error');
  });

  test('a missing version header', async () => {
    expect((await ask({ messages: [USER] }, {})).body.error?.message).toMatch(/anthropic-version/);
  });

  test('and takes what it takes', async () => {
    const answer = await ask({
      system: [text('s')],
      tools,
      thinking,
      messages: [
        USER,
        USER,
        turn('assistant', { type: 'thinking', thinking: 'x', signature: signThinking('x') }, use('a'), use('b')),
        turn('user', result('b')),
        turn('user', result('a'), text('go on')),
      ],
    });
    expect(answer.body).toMatchObject({ type: 'message' });
  });
});

describe('the server', () => {
  const post = (provider: ScriptedProvider, body: string, headers: Record<string, string> = {}) =>
    fetch(`${provider.openAiUrl}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
  const hello = JSON.stringify({ model: 'm', messages: [USER] });

  test('keeps the system prompt out of the identity and the callers apart', async () => {
    const script: Script = byCaller({
      title: turns([{ text: 'T' }]),
      default: turns([[{ text: '1' }, { text: '2' }]]),
    });
    const provider = await start({ script });
    const say = async (system: string, headers = {}) => {
      const body = JSON.stringify({ model: 'm', messages: [{ role: 'system', content: system }, USER] });
      const reply = (await (await post(provider, body, headers)).json()) as {
        choices: { message: { content: string } }[];
      };
      return reply.choices[0]?.message.content;
    };
    expect(await say('today is Monday')).toBe('1');
    expect(await say('x', { 'x-scripted-caller': 'title' })).toBe('T');
    expect(await say('today is Tuesday')).toBe('2');
  });

  test('is loud when the script has no turn', async () => {
    const provider = await start({ script: turns([]) });
    const response = await post(provider, hello);
    expect(response.status).toBe(400);
    expect(provider.requests()[0]?.refused).toMatch(/turn 1 was asked for/);
  });

  test('answers with a web page or an error body on request', async () => {
    const provider = await start({
      script: turns([
        [{ fault: { kind: 'wrong-content-type' } }, { fault: { kind: 'error-body', message: 'bad day' } }],
      ]),
    });
    const page = await post(provider, hello);
    expect(page.headers.get('content-type')).toBe('text/html');
    expect(await page.text()).toContain('<!doctype html>');
    expect(await (await post(provider, hello)).json()).toMatchObject({ error: { message: 'bad day' } });
  });

  test('reports usage in a stream only when asked', async () => {
    const provider = await start();
    const stream = async (extra: object) =>
      (await post(provider, JSON.stringify({ model: 'm', messages: [USER], stream: true, ...extra }))).text();
    expect(await stream({})).not.toContain('prompt_tokens');
    expect(await stream({ stream_options: { include_usage: true } })).toContain('"prompt_tokens"');
  });

  test('refuses large bodies, unknown paths, wrong keys and text that is no JSON', async () => {
    const provider = await start({ maxBodyBytes: 100, apiKey: 'secret' });
    const key = { authorization: 'Bearer secret' };
    expect((await post(provider, hello)).status).toBe(401);
    expect((await post(provider, hello, key)).status).toBe(200);
    expect((await post(provider, 'x'.repeat(101), key)).status).toBe(413);
    expect((await post(provider, '{"a', key)).status).toBe(400);
    expect((await fetch(`${provider.url}/nowhere`, { headers: key })).status).toBe(404);
  });

  test('lists its models in both forms', async () => {
    const provider = await start({ models: ['one', 'two'] });
    const get = async (path: string, headers = {}) => (await fetch(`${provider.url}${path}`, { headers })).json();
    expect(await get('/v1/models')).toMatchObject({
      object: 'list',
      data: [{ id: 'one', object: 'model' }, { id: 'two' }],
    });
    expect(await get('/v1/models/two')).toMatchObject({ id: 'two' });
    expect(await get('/v1/models', { 'anthropic-version': '2023-06-01' })).toMatchObject({
      data: [{ type: 'model', id: 'one' }, { id: 'two' }],
    });
  });

  test('closes in the middle of a hang, twice, and tells those who wait', async () => {
    const provider = await start({ script: () => ({ text: 'x', fault: { kind: 'hang', afterPieces: 0 } }) });
    const asking = post(provider, hello).then(
      () => 'answered',
      () => 'cut',
    );
    await provider.waitFor((entry) => entry.number === 1);
    const waiting = provider
      .waitFor((entry) => entry.number === 2)
      .then(
        () => 'seen',
        () => 'told',
      );
    await Promise.all([provider.close(), provider.close()]);
    expect(await asking).toBe('cut');
    expect(await waiting).toBe('told');
    expect(provider.requests()[0]?.clientLeft).toBe(false);
  });
});
