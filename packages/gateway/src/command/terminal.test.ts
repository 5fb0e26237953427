import type { StreamEvent } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { readEvents } from './attach.ts';
import type { Host } from './host.ts';
import { Terminal } from './terminal.ts';

const show = async (events: readonly [string, unknown][], json = false) => {
  const out: string[] = [];
  const err: string[] = [];
  const host = {
    print: async (text: string) => void out.push(text),
    say: (text: string) => void err.push(text),
  } as unknown as Host;
  const terminal = new Terminal(host, json);
  for (const [event, data] of events) await terminal.accept({ id: null, event, data: JSON.stringify(data) });
  await terminal.finish();
  return { out: out.join(''), err: err.join(''), terminal };
};
const chunk = (id: string, content: unknown): [string, unknown] => [
  'messages',
  [{ type: 'AIMessageChunk', id, content }, {}],
];

describe('the terminal', () => {
  test('shows words as they come, and each call, result and file once', async () => {
    const message = {
      type: 'ai',
      id: 'a',
      content: 'Hello',
      tool_calls: [{ id: 'c', name: 'bash', args: { command: 'ls' } }],
    };
    const { out, err, terminal } = await show([
      ['metadata', { run_id: 'r', thread_id: 't' }],
      chunk('a', 'Hel'),
      chunk('a', [
        { type: 'text', text: 'lo' },
        { type: 'reasoning', text: 'no' },
      ]),
      ['updates', { model: { messages: [message] } }],
      ['updates', { model: { messages: [message] } }],
      [
        'updates',
        {
          tools: {
            messages: [{ type: 'tool', name: 'bash', content: 'a\nb', status: 'success' }],
            artifacts: ['/mnt/user-data/outputs/x.md'],
          },
        },
      ],
      chunk('b', 'Done\n'),
      ['end', { status: 'success' }],
    ]);
    expect(out).toBe('Hello\nDone\n');
    expect(err).toBe('→ bash {"command":"ls"}\n✓ bash a b\n▤ /mnt/user-data/outputs/x.md\n');
    expect([terminal.runId, terminal.threadId, terminal.status, terminal.asks]).toEqual(['r', 't', 'success', false]);
  });

  test('an answer that was not streamed is shown all the same', async () => {
    expect((await show([['updates', { model: { messages: [{ type: 'ai', id: 'x', content: 'Whole' }] } }]])).out).toBe(
      'Whole\n',
    );
  });

  test('a whole message is shown once, however often it is told; what stands in for a failed model is told as the error', async () => {
    const whole = { type: 'ai', id: 'x', content: 'Whole' };
    const told = await show([
      ['updates', { model: { messages: [whole] } }],
      ['messages', [whole, {}]],
    ]);
    expect(told.out).toBe('Whole\n');
    const standIn = { ...whole, additional_kwargs: { reindeer_error_fallback: true } };
    const failed = await show([
      ['messages', [standIn, {}]],
      ['updates', { model: { messages: [standIn] } }],
      ['error', { message: 'Whole' }],
    ]);
    expect([failed.out, failed.err]).toEqual(['', '✗ Whole\n']);
  });

  test('questions and faults are marked; control characters of terminals are taken out', async () => {
    const asked = await show([
      [
        'updates',
        {
          tools: {
            messages: [
              { type: 'tool', name: 'ask', content: 'Which?', artifact: { human_input: { question: 'Which?' } } },
            ],
          },
        },
      ],
    ]);
    expect([asked.terminal.asks, asked.err]).toEqual([true, '? Which?\n']);
    const paused = await show([['updates', { __interrupt__: [{ value: { action: 'bash' } }] }]]);
    expect([paused.terminal.asks, paused.err]).toEqual([true, '? {"action":"bash"}\n']);
    const failed = await show([['error', { message: 'Broke\u001b[2J' }]]);
    expect([failed.terminal.failed, failed.err]).toEqual(['Broke\u001b[2J', '✗ Broke[2J\n']);
    expect((await show([chunk('a', '\u001b]0;title\u0007hi')])).out).toBe(']0;titlehi\n');
  });

  test('json is one event per line and nothing else', async () => {
    const { out, err } = await show(
      [['metadata', { run_id: 'r' }], chunk('a', 'x'), ['error', { message: 'no' }]],
      true,
    );
    expect(
      out
        .trimEnd()
        .split('\n')
        .map((line) => (JSON.parse(line) as { event: string }).event),
    ).toEqual(['metadata', 'messages', 'error']);
    expect(err).toBe('');
  });
});

describe('reading events', () => {
  const read = async (chunks: readonly string[]) => {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        for (const text of chunks) controller.enqueue(new TextEncoder().encode(text));
        controller.close();
      },
    });
    const events: StreamEvent[] = [];
    for await (const event of readEvents(body, new AbortController().signal)) events.push(event);
    return events;
  };

  test('events are put together whatever the pieces; comments are skipped', async () => {
    const text = ': heartbeat\n\nid: e-1\nevent: values\ndata: {"a":\ndata: "ü"}\n\nevent: end\r\ndata: null\r\n\r\n';
    const expected = [
      { id: 'e-1', event: 'values', data: '{"a":\n"ü"}' },
      { id: null, event: 'end', data: 'null' },
    ];
    expect(await read([text])).toEqual(expected);
    expect(await read([...text])).toEqual(expected);
  });

  test('a stream without an end is an error, not a success', async () => {
    await expect(read(['event: values\ndata: {}\n\n'])).rejects.toThrow('ended the stream early');
  });
});
