import { type AddressInfo, connect, createServer } from 'node:net';
import type { Client } from '@langchain/langgraph-sdk';
import { connectClient } from '@reindeer/client';
import { type Script, type ScriptedProvider, startScriptedProvider } from '@reindeer/scripted';
import { verifies } from '@reindeer/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { projectFolder, type RunningServer, say, scriptedConfig, startServer } from '../support/server.ts';

/** What the newest message of the user asks for decides; how many tool results follow it is how far we are. */
const script: Script = (request) => {
  const newest = request.messages.findLastIndex((message) => message.role === 'user');
  const asked = request.messages[newest]?.text ?? '';
  const results = request.messages.slice(newest + 1).filter((message) => message.role === 'tool');
  const [, scene = '', rest = ''] = /scene:(\w+)(?: (.*))?/s.exec(asked) ?? [];
  switch (scene) {
    case 'report':
      return reportTurn(results.length);
    case 'sleep':
      return results.length === 0
        ? { text: 'Sleeping.', toolCalls: [{ name: 'bash', args: { description: 'sleep', command: rest } }] }
        : { text: 'Awake.' };
    case 'slow':
      return { text: 'word '.repeat(120), delayMs: 10, pieceSize: 5 };
    case 'question':
      return {
        toolCalls: [
          {
            name: 'ask_clarification',
            args: { question: 'Which colour?', clarification_type: 'missing_info', options: ['red', 'blue'] },
          },
        ],
      };
    default:
      return { text: `Heard: ${asked.slice(-40)}` };
  }
};

function reportTurn(done: number) {
  if (done === 0)
    return {
      text: 'I write it.',
      toolCalls: [
        {
          name: 'write_file',
          args: { description: 'write', path: '/mnt/user-data/outputs/report.md', content: '# Report\n\nReindeer.\n' },
        },
      ],
    };
  if (done === 1)
    return {
      text: 'I present it.',
      toolCalls: [{ name: 'present_files', args: { filepaths: ['/mnt/user-data/outputs/report.md'] } }],
    };
  return { text: 'Done.' };
}

let provider: ScriptedProvider;
let project: Awaited<ReturnType<typeof projectFolder>>;
let server: RunningServer;
let client: Client;
beforeAll(async () => {
  provider = await startScriptedProvider({ script });
  project = await projectFolder(scriptedConfig(provider.openAiUrl));
  server = await startServer(project.folder);
  client = server.client;
});
afterAll(async () => {
  const ended = await server.process.end();
  await provider.close();
  await project.remove();
  expect(ended).toEqual({ code: 0, signal: null });
});

interface Part {
  readonly id?: string | undefined;
  readonly event: string;
  readonly data: unknown;
}
async function collect(stream: AsyncIterable<unknown>): Promise<Part[]> {
  const parts: Part[] = [];
  for await (const part of stream) parts.push(part as Part);
  return parts;
}

/** What a client has put together from message chunks, by message id, as the SDK does it. */
function texts(parts: readonly Part[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const part of parts) {
    if (part.event !== 'messages') continue;
    const [chunk] = part.data as [{ id: string; type: string; content: string }];
    if (chunk.type === 'remove') found.delete(chunk.id);
    else if (chunk.type.toLowerCase().startsWith('ai'))
      found.set(chunk.id, (found.get(chunk.id) ?? '') + chunk.content);
  }
  return found;
}

describe('the official client', () => {
  test('streams a run in four modes; the file it presents downloads', verifies('API-03', 'FILE-3a'), async () => {
    const thread = await client.threads.create();
    const runs: unknown[] = [];
    const parts = await collect(
      client.runs.stream(thread.thread_id, 'lead_agent', {
        input: say('scene:report'),
        streamMode: ['values', 'messages-tuple', 'updates', 'custom'],
        onRunCreated: (run) => runs.push(run),
      }),
    );
    expect(parts[0]).toMatchObject({ event: 'metadata', data: { thread_id: thread.thread_id } });
    expect(parts.at(-1)?.event).toBe('end');
    const [{ data: metadata } = { data: null }] = parts;
    expect(runs).toEqual([metadata]);
    expect(new Set(parts.map((part) => part.event))).toEqual(
      new Set(['metadata', 'values', 'messages', 'updates', 'custom', 'end']),
    );
    expect(parts.filter((part) => part.event === 'custom').map((part) => part.data)).toMatchObject([
      { type: 'workspace_changes', summary: { created: 1, deleted: 0 } },
    ]);
    expect([...texts(parts).values()]).toEqual(['I write it.', 'I present it.', 'Done.']);

    const last = parts.findLast((part) => part.event === 'values')?.data as {
      messages: { type: string; content: string }[];
      artifacts: string[];
      title: string;
    };
    expect(last.messages.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'ai', 'tool', 'ai']);
    expect(last.artifacts).toEqual(['/mnt/user-data/outputs/report.md']);
    const state = await client.threads.getState<{ messages: unknown[] }>(thread.thread_id);
    expect(state.values.messages).toHaveLength(6);
    expect(state.next).toEqual([]);

    const file = await fetch(
      `${server.url}/api/threads/${thread.thread_id}/artifacts/mnt/user-data/outputs/report.md?download=true`,
    );
    expect(file.headers.get('content-disposition')).toContain('attachment; filename="report.md"');
    expect(await file.text()).toBe('# Report\n\nReindeer.\n');
    const part = await fetch(
      `${server.url}/api/threads/${thread.thread_id}/artifacts/mnt/user-data/outputs/report.md`,
      { headers: { range: 'bytes=2-7' } },
    );
    expect([part.status, await part.text()]).toEqual([206, 'Report']);

    const ids = parts.map((entry) => entry.id).filter((id): id is string => id !== undefined);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('a thread goes on where it was; state can be written, forked from and copied', async () => {
    const { thread_id: id } = await client.threads.create();
    await client.runs.wait(id, 'lead_agent', { input: say('first') });
    const first = await client.threads.getState(id);
    const second = (await client.runs.wait(id, 'lead_agent', { input: say('second') })) as unknown as {
      messages: { content: string }[];
    };
    expect(second.messages.map((message) => message.content)).toEqual([
      'first',
      'Heard: first',
      'second',
      'Heard: second',
    ]);
    await client.threads.updateState(id, { values: { title: 'Renamed' } });
    expect((await client.threads.search({ metadata: {} })).find((thread) => thread.thread_id === id)?.values).toEqual({
      title: 'Renamed',
    });
    const fork = (await client.runs.wait(id, 'lead_agent', {
      input: say('instead'),
      checkpoint: first.checkpoint,
    })) as unknown as { messages: { content: string }[] };
    expect(fork.messages.map((message) => message.content)).toEqual([
      'first',
      'Heard: first',
      'instead',
      'Heard: instead',
    ]);
    const copy = await client.threads.copy(id);
    const copied = copy as unknown as { thread_id: string };
    expect((await client.threads.getState<{ messages: unknown[] }>(copied.thread_id)).values.messages).toHaveLength(4);
    const history = await client.threads.getHistory(id, { limit: 50 });
    expect(history[0]?.checkpoint.checkpoint_id).toBe((await client.threads.getState(id)).checkpoint.checkpoint_id);
    await expect(client.threads.updateState(id, { values: { colour: 1 } })).rejects.toThrow('422');
    const form = new FormData();
    form.append('files', new Blob(['hello']), 'note.txt');
    await fetch(`${server.url}/api/threads/${id}/uploads`, { method: 'POST', body: form });
    const file = `${server.url}/api/threads/${id}/artifacts/mnt/user-data/uploads/note.txt`;
    expect((await fetch(file)).status).toBe(200);
    await client.threads.delete(id);
    await expect(client.threads.get(id)).rejects.toThrow('404');
    expect((await fetch(file)).status).toBe(404);
  });

  test('our client of a server elsewhere says what the server says', verifies('CLI-1'), async () => {
    await using own = connectClient({
      url: `${server.url}/`,
      ...(server.token === null ? {} : { token: server.token }),
    });
    const { threadId, text, usage } = await own.chat('hello there');
    expect(text).toBe('Heard: hello there');
    expect(usage.total_tokens).toBeGreaterThan(0);
    expect(await own.threads.get(threadId)).toEqual(await client.threads.get(threadId));
    await own.close();
    await expect(own.models.list()).rejects.toMatchObject({ code: 'shutting_down' });
    // The server goes on; where there is none, that is said.
    expect((await client.threads.get(threadId)).status).toBe('idle');
    await using nobody = connectClient({ url: 'http://127.0.0.1:9' });
    await expect(nobody.models.list()).rejects.toMatchObject({ code: 'store_unavailable', retryable: true });
    await expect(nobody.chat('x')).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(() => connectClient({ url: 'localhost:2026' })).toThrow('Use http://host:port');
  });

  test('our client reads on after a cut, and nothing comes twice', async () => {
    const cuts: (() => void)[] = [];
    const proxy = createServer((incoming) => {
      const outgoing = connect(server.port, '127.0.0.1');
      const both = [incoming, outgoing];
      cuts.push(() => {
        for (const socket of both) socket.destroy();
      });
      for (const socket of both) socket.on('error', () => {});
      incoming.pipe(outgoing).pipe(incoming);
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    await using own = connectClient({ url, ...(server.token === null ? {} : { token: server.token }) });
    const ids: string[] = [];
    let text = '';
    let isCut = false;
    for await (const { type, data } of own.stream('scene:slow')) {
      if (type === 'metadata') ids.push(data.run_id);
      if (type === 'messages-tuple') {
        // Once: what is taken back begins anew, and would be cut again.
        for (const cut of cuts.splice(0, isCut ? 0 : cuts.length)) cut();
        isCut = true;
        // Where the server cannot know what had arrived, it takes the message back and tells it anew.
        text = data.type === 'ai' ? text + data.content : '';
      }
      if (type === 'end') expect(data).toMatchObject({ status: 'success', run_id: ids[0] });
    }
    expect(text).toBe('word '.repeat(120));
    expect(ids).toHaveLength(1);
    // It came through another connection.
    expect(cuts.length).toBeGreaterThan(0);
    for (const cut of cuts) cut();
    await new Promise((resolve) => proxy.close(resolve));
  });

  test('a busy thread refuses a second run, or lets it take over', verifies('API-05'), async () => {
    const { thread_id: id } = await client.threads.create();
    const first = await client.runs.create(id, 'lead_agent', { input: say('scene:sleep sleep 60') });
    await expect(client.runs.create(id, 'lead_agent', { input: say('second') })).rejects.toThrow('409');
    await expect(client.threads.updateState(id, { values: { title: 'x' } })).rejects.toThrow('409');
    await expect(client.threads.delete(id)).rejects.toThrow('409');
    const second = (await client.runs.wait(id, 'lead_agent', {
      input: say('second'),
      multitaskStrategy: 'interrupt',
    })) as unknown as { messages: { content: string }[] };
    expect(second.messages.at(-1)?.content).toBe('Heard: second');
    expect((await client.runs.get(id, first.run_id)).status).toBe('interrupted');
  });

  test('runs wait for their turn, one after the other', async () => {
    const { thread_id: id } = await client.threads.create();
    const at = { multitaskStrategy: 'enqueue' as const };
    const first = await client.runs.create(id, 'lead_agent', { input: say('scene:sleep sleep 1'), ...at });
    const second = await client.runs.create(id, 'lead_agent', { input: say('second'), ...at });
    const dropped = await client.runs.create(id, 'lead_agent', { input: say('dropped'), ...at });
    expect([second.status, dropped.status]).toEqual(['pending', 'pending']);
    await expect(client.runs.create(id, 'lead_agent', { input: say('now') })).rejects.toThrow('409');
    await client.runs.cancel(id, dropped.run_id, true);
    const seen: string[] = [];
    for await (const part of client.runs.joinStream(id, second.run_id)) seen.push(part.event);
    expect(seen.at(-1)).toBe('end');
    const runs = await Promise.all([first, second, dropped].map(({ run_id }) => client.runs.get(id, run_id)));
    expect(runs.map(({ status }) => status)).toEqual(['success', 'success', 'interrupted']);
    const state = await client.threads.getState<{ messages: { type: string; content: string }[] }>(id);
    const asked = state.values.messages.filter(({ type }) => type === 'human').map(({ content }) => content);
    expect(asked).toEqual(['scene:sleep sleep 1', 'second']);
  });

  test(
    'cancel with wait returns when the command is gone; the next request to the model is valid',
    verifies('API-05'),
    async () => {
      const { thread_id: id } = await client.threads.create();
      const begun = Date.now();
      const run = await client.runs.create(id, 'lead_agent', {
        input: say('scene:sleep touch started; sleep 60; touch ended'),
        streamMode: ['updates'],
      });
      // The command is known to run when the file that it makes is there.
      const started = async () =>
        (await fetch(`${server.url}/api/threads/${id}/artifacts/mnt/user-data/workspace/started`)).status === 200;
      for await (const part of client.runs.joinStream(id, run.run_id, { streamMode: ['updates'] }))
        if ((part.data as { model?: unknown }).model !== undefined) break;
      while (!(await started())) expect(Date.now() - begun).toBeLessThan(20_000);
      await client.runs.cancel(id, run.run_id, true);
      expect(Date.now() - begun).toBeLessThan(30_000);
      expect((await client.runs.get(id, run.run_id)).status).toBe('interrupted');
      expect((await fetch(`${server.url}/api/threads/${id}/artifacts/mnt/user-data/workspace/ended`)).status).toBe(404);
      const processes = await processesWith('sleep 60; touch ended');
      expect(processes).toEqual([]);
      const next = (await client.runs.wait(id, 'lead_agent', { input: say('still there?') })) as unknown as {
        messages: { content: string }[];
      };
      expect(next.messages.at(-1)?.content).toBe('Heard: still there?');
      expect(provider.requests().filter((request) => (request.status ?? 0) >= 400)).toEqual([]);
      // Again is fine (RL-15); what ended by itself is told apart.
      await client.runs.cancel(id, run.run_id, true);
      const [ended] = await client.runs.list(id, { limit: 1 });
      await expect(client.runs.cancel(id, ended?.run_id ?? '', true)).rejects.toThrow('is not cancellable');
    },
  );

  test('rollback restores the state before the run', verifies('API-05'), async () => {
    const { thread_id: id } = await client.threads.create();
    await client.runs.wait(id, 'lead_agent', { input: say('kept') });
    const run = await client.runs.create(id, 'lead_agent', { input: say('scene:sleep sleep 60') });
    for await (const part of client.runs.joinStream(id, run.run_id, { streamMode: ['updates'] }))
      if ((part.data as { model?: unknown }).model !== undefined) break;
    await client.runs.cancel(id, run.run_id, true, 'rollback');
    const { values } = await client.threads.getState<{ messages: { content: string }[] }>(id);
    expect(values.messages.map((message) => message.content)).toEqual(['kept', 'Heard: kept']);
  });

  test('a question ends the turn; the answer goes on', async () => {
    const { thread_id: id } = await client.threads.create();
    const asked = (await client.runs.wait(id, 'lead_agent', { input: say('scene:question') })) as unknown as {
      messages: { type: string; name?: string; artifact?: { human_input?: { question: string } } }[];
    };
    expect(asked.messages.at(-1)).toMatchObject({
      type: 'tool',
      name: 'ask_clarification',
      artifact: { human_input: { question: 'Which colour?' } },
    });
    const answered = (await client.runs.wait(id, 'lead_agent', { input: say('red') })) as unknown as {
      messages: { content: string }[];
    };
    expect(answered.messages.at(-1)?.content).toBe('Heard: red');
  });

  test('runs pause before a node when asked and continue without input', async () => {
    const { thread_id: id } = await client.threads.create();
    await client.runs.wait(id, 'lead_agent', { input: say('hello'), interruptBefore: ['model'] });
    const paused = await client.threads.getState(id);
    expect(paused.next).toEqual(['model']);
    const done = (await client.runs.wait(id, 'lead_agent', { input: null })) as unknown as {
      messages: { content: string }[];
    };
    expect(done.messages.map((message) => message.content)).toEqual(['hello', 'Heard: hello']);
  });
});

async function processesWith(text: string): Promise<string[]> {
  const { readdir, readFile } = await import('node:fs/promises');
  const found: string[] = [];
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const line = await readFile(`/proc/${entry}/cmdline`, 'utf8').catch(() => '');
    if (line.includes(text)) found.push(line);
  }
  return found;
}

describe('coming back to a stream', () => {
  test('every form of Last-Event-ID loses nothing and doubles nothing', verifies('API-06'), async () => {
    const { thread_id: id } = await client.threads.create();
    const run = await client.runs.create(id, 'lead_agent', {
      input: say('scene:slow'),
      streamMode: ['messages-tuple', 'updates', 'values'],
    });
    const whole = 'word '.repeat(120);

    // Cut in the middle of the message and come back with the last id.
    const before: Part[] = [];
    for await (const part of client.runs.joinStream(id, run.run_id)) {
      before.push(part as Part);
      if (before.filter((entry) => entry.event === 'messages').length >= 3) break;
    }
    const lastId = before.findLast((part) => part.id !== undefined)?.id ?? '';
    const after = await collect(client.runs.joinStream(id, run.run_id, { lastEventId: lastId }));
    expect([...texts([...before, ...after]).values()]).toEqual([whole]);
    expect(after.at(-1)?.event).toBe('end');

    // After the end: from the start for anything that is no position of this log, from there on for a position.
    const facts = await collect(client.runs.joinStream(id, run.run_id));
    for (const odd of ['-1', 'nonsense', '0-0-0']) {
      const again = await collect(client.runs.joinStream(id, run.run_id, { lastEventId: odd }));
      expect(again.map((part) => part.id)).toEqual(facts.map((part) => part.id));
    }
    expect([...texts(facts).values()]).toEqual([whole]);
    const positions = facts.map((part) => part.id).filter((entry): entry is string => entry !== undefined);
    const middle = positions[Math.floor(positions.length / 2)] ?? '';
    const rest = await collect(client.runs.joinStream(id, run.run_id, { lastEventId: middle }));
    expect(rest.map((part) => part.id).filter((entry) => entry !== undefined)).toEqual(
      positions.slice(positions.indexOf(middle) + 1),
    );

    const other = await collect(client.runs.joinStream(id, run.run_id, { lastEventId: 'otherepoch-5' }));
    expect(other.some((part) => part.event === 'gap')).toBe(true);
    expect(other.at(-1)?.event).toBe('end');
    expect((await client.runs.get(id, run.run_id)).status).toBe('success');
  });

  test('a reader that takes nothing costs the run nothing', verifies('RS-21'), async () => {
    const { thread_id: id } = await client.threads.create();
    const run = await client.runs.create(id, 'lead_agent', {
      input: say('scene:slow'),
      streamMode: ['messages-tuple', 'values'],
    });
    const socket = connect(server.port, '127.0.0.1');
    socket.on('error', () => {});
    socket.write(`GET /api/threads/${id}/runs/${run.run_id}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    await new Promise<void>((resolve) => socket.once('data', () => resolve()));
    socket.pause();
    await client.runs.join(id, run.run_id);
    expect((await client.runs.get(id, run.run_id)).status).toBe('success');
    socket.destroy();
  });

  test('a creator that leaves ends its run, unless it said otherwise', verifies('RS-16'), async () => {
    for (const [onDisconnect, status] of [
      ['cancel', 'interrupted'],
      ['continue', 'success'],
    ] as const) {
      const { thread_id: id } = await client.threads.create();
      const controller = new AbortController();
      let runId = '';
      const stream = client.runs.stream(id, 'lead_agent', {
        input: say('scene:slow'),
        streamMode: ['messages-tuple'],
        onDisconnect,
        signal: controller.signal,
        onRunCreated: (run) => {
          runId = run.run_id;
        },
      });
      try {
        for await (const part of stream) if (part.event === 'messages') controller.abort();
      } catch {
        // The SDK may throw on its own abort.
      }
      await client.runs.join(id, runId).catch(() => {});
      expect([onDisconnect, (await client.runs.get(id, runId)).status]).toEqual([onDisconnect, status]);
    }
  });
});

describe('models', () => {
  test('are listed without keys, addresses or classes', verifies('MISC-2', 'SEC-05'), async () => {
    const text = await (await fetch(`${server.url}/api/models`)).text();
    expect(JSON.parse(text)).toMatchObject({
      models: [{ name: 'scripted', model: 'scripted', demo: false }],
      token_usage: { enabled: true },
    });
    for (const secret of ['not-a-real-key', 'api_key', '127.0.0.1', 'base_url', 'openai'])
      expect(text).not.toContain(secret);
  });
});

describe('strangers', () => {
  test('other origins, rebound hosts and forms get nothing from the real server', verifies('SEC-02'), async () => {
    const call = (headers: Record<string, string>, body = '{}') =>
      fetch(`${server.url}/api/threads`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body,
      });
    const before = (await client.threads.search({ limit: 1000 })).length;
    expect((await call({ origin: 'https://evil.example' })).status).toBe(403);
    expect((await call({ 'content-type': 'text/plain' })).status).toBe(415);
    const rebound = await new Promise<string>((resolve) => {
      const socket = connect(server.port, '127.0.0.1', () =>
        socket.write('GET /api/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n'),
      );
      let text = '';
      socket.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
      });
      socket.on('close', () => resolve(text));
    });
    expect(rebound).toMatch(/^HTTP\/1\.1 403/);
    expect(rebound).not.toContain('scripted');
    expect((await client.threads.search({ limit: 1000 })).length).toBe(before);
  });
});
