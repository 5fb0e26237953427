import { describe, expect, test } from 'vitest';
import { allMessages, type ChatEvent, type ChatState, emptyChat, reduceChat, retryPlan } from './state.ts';
import type { WireMessage } from './wire.ts';

const part = (event: string, data: unknown): ChatEvent => ({ kind: 'part', event, data });
const chunk = (id: string, extra: Partial<WireMessage> = {}): ChatEvent =>
  part('messages', [{ type: 'AIMessageChunk', id, content: '', ...extra }, { langgraph_node: 'model' }]);
const whole = (message: WireMessage): ChatEvent => part('messages', [message, {}]);
const human = (id: string, text: string) => ({ type: 'human', id, content: text });
const ai = (id: string, text: string, extra = {}) => ({ type: 'ai', id, content: text, ...extra });
const play = (...events: ChatEvent[]): ChatState => events.reduce(reduceChat, emptyChat('t'));
const shown = (state: ChatState) =>
  allMessages(state).map((message) => `${message.kind}:${message.id}:${message.text}`);

const SENT: ChatEvent = { kind: 'submitted', message: human('h1', 'hi') };
const RUN: ChatEvent = { kind: 'run', runId: 'r' };

describe('a stream becomes messages', () => {
  test('the own message shows at once and never twice', () => {
    expect(shown(play(SENT))).toEqual(['human:h1:hi']);
    expect(shown(play(SENT, RUN, part('values', { messages: [human('h1', 'hi')] })))).toEqual(['human:h1:hi']);
    expect(shown(play(SENT, RUN, whole(human('h1', 'hi'))))).toEqual(['human:h1:hi']);
  });

  test('pieces grow into the message that the snapshot confirms', () => {
    const growing = play(SENT, RUN, chunk('a', { content: 'Hel' }), chunk('a', { content: 'lo' }));
    expect(shown(growing)).toEqual(['human:h1:hi', 'ai:a:Hello']);
    expect(allMessages(growing)[1]).toMatchObject({ streaming: true });
    const done = reduceChat(growing, part('values', { messages: [human('h1', 'hi'), ai('a', 'Hello!')] }));
    expect(shown(done)).toEqual(['human:h1:hi', 'ai:a:Hello!']);
    expect(allMessages(done)[1]).toMatchObject({ streaming: false });
  });

  test('a whole message replaces its pieces in place, and late pieces of it change nothing', () => {
    const state = play(
      SENT,
      RUN,
      chunk('a', { content: 'He' }),
      whole(ai('a', 'Hello')),
      chunk('a', { content: 'llo' }),
    );
    expect(shown(state)).toEqual(['human:h1:hi', 'ai:a:Hello']);
    const settled = reduceChat(state, part('values', { messages: [human('h1', 'hi'), ai('a', 'Hello')] }));
    expect(shown(reduceChat(settled, chunk('a', { content: 'again' })))).toEqual(['human:h1:hi', 'ai:a:Hello']);
  });

  test('a message that starts over forgets its pieces, and a settled one keeps its place', () => {
    const remove = (id: string) => whole({ type: 'remove', id, content: '' });
    const state = play(SENT, RUN, chunk('a', { content: 'lo' }), remove('a'), whole(ai('a', 'Hello')));
    expect(shown(state)).toEqual(['human:h1:hi', 'ai:a:Hello']);
    const values = part('values', { messages: [human('h1', 'hi'), ai('a', 'Hello'), human('h2', 'more')] });
    const settled = play(values, RUN, remove('a'), whole(ai('a', 'Hello')));
    expect(shown(settled)).toEqual(['human:h1:hi', 'ai:a:Hello', 'human:h2:more']);
  });

  test('two messages that are written side by side stay apart', () => {
    const state = play(RUN, chunk('a', { content: '1' }), chunk('b', { content: 'x' }), chunk('a', { content: '2' }));
    expect(shown(state)).toEqual(['ai:a:12', 'ai:b:x']);
  });

  test('tool calls and reasoning are put together from pieces', () => {
    const state = play(
      RUN,
      chunk('a', { additional_kwargs: { reasoning_content: 'I ' } }),
      chunk('a', { additional_kwargs: { reasoning_content: 'think.' } }),
      chunk('a', { tool_call_chunks: [{ index: 0, id: 'c', name: 'bash', args: '' }] }),
      chunk('a', { tool_call_chunks: [{ index: 0, args: '{"command":' }] }),
      chunk('a', { tool_call_chunks: [{ index: 1, id: 'd', name: 'ls', args: '{}' }] }),
      chunk('a', { tool_call_chunks: [{ index: 0, args: '"ls"}' }] }),
    );
    expect(allMessages(state)[0]).toMatchObject({
      reasoning: 'I think.',
      calls: [
        { id: 'c', name: 'bash', args: { command: 'ls' } },
        { id: 'd', name: 'ls', args: {} },
      ],
    });
  });

  test('content in blocks: text is text, thinking is reasoning', () => {
    const state = play(
      RUN,
      chunk('a', { content: [{ type: 'thinking', thinking: 'Hm', index: 0 }] }),
      chunk('a', { content: [{ type: 'text', text: 'Yes', index: 1 }] }),
    );
    expect(allMessages(state)[0]).toMatchObject({ reasoning: 'Hm', text: 'Yes' });
    const tagged = play(RUN, chunk('a', { content: '<think>Hm' }), chunk('a', { content: ' hm</think>Yes' }));
    expect(allMessages(tagged)[0]).toMatchObject({ reasoning: 'Hm hm', text: 'Yes' });
  });

  test('frames of sub-graphs and unknown events change nothing', () => {
    const state = play(SENT, RUN);
    expect(reduceChat(state, part('values|tools:1', { messages: [] }))).toBe(state);
    expect(reduceChat(state, part('messages|x', [ai('z', 'no'), {}]))).toBe(state);
    expect(reduceChat(state, part('debug', {}))).toBe(state);
    for (const data of [null, 7, 'x', [], {}, [null], [{ type: 'AIMessageChunk' }]]) {
      expect(shown(reduceChat(state, part('messages', data)))).toEqual(shown(state));
    }
  });

  test('an old snapshot, replayed to a late reader, takes nothing away; a shorter history of another kind does', () => {
    const loaded = play({
      kind: 'loaded',
      values: { messages: [human('h1', 'hi'), ai('a', 'one'), human('h2', 'more')] },
      next: [],
      interrupts: [],
    });
    const running = reduceChat(loaded, RUN);
    expect(shown(reduceChat(running, part('values', { messages: [human('h1', 'hi'), ai('a', 'one')] })))).toEqual(
      shown(loaded),
    );
    expect(shown(reduceChat(running, part('values', { messages: [human('h2', 'more')] })))).toEqual(['human:h2:more']);
  });

  test('what was being written when the run ended stays, and is not shown as growing', () => {
    const state = play(SENT, RUN, chunk('a', { content: 'Hel' }), {
      kind: 'ended',
      ended: { how: 'stopped', trouble: null },
    });
    expect(allMessages(state)[1]).toMatchObject({ text: 'Hel', streaming: false });
  });

  test('title and files come with snapshots; a snapshot without them keeps them', () => {
    const state = play(
      part('values', { messages: [], title: 'T', artifacts: ['/mnt/user-data/outputs/a'] }),
      part('values', { messages: [] }),
    );
    expect(state).toMatchObject({ title: 'T', artifacts: ['/mnt/user-data/outputs/a'] });
  });

  test('the plan and the count of summarised messages come with snapshots; an empty plan clears it', () => {
    const todos = [
      { content: 'one', status: 'in_progress' },
      { content: 'two', status: 'odd' },
      { status: 'pending' },
      7,
    ];
    const state = play(
      part('values', { messages: [], todos, compaction: { removedMessages: 12 } }),
      part('values', { messages: [] }),
    );
    expect(state.summarised).toBe(12);
    expect(state.todos).toEqual([
      { content: 'one', status: 'in_progress' },
      { content: 'two', status: 'pending' },
    ]);
    expect(play(part('values', { todos }), part('values', { todos: [] })).todos).toEqual([]);
  });

  test('control messages and system prompts are not shown', () => {
    const state = play(
      part('values', {
        messages: [
          { type: 'system', id: 's', content: 'secret' },
          { ...human('h0', 'x'), additional_kwargs: { hide_from_ui: true } },
          human('h1', '<uploaded_files>\n- a\n</uploaded_files>\nhello'),
        ],
      }),
    );
    expect(allMessages(state)).toMatchObject([
      { id: 'h0', hidden: true },
      { id: 'h1', text: 'hello', hidden: false },
    ]);
  });

  test('a retry of the model is told until something comes', () => {
    const waiting = play(
      RUN,
      part('custom', { type: 'llm_retry', attempt: 2, max_attempts: 3, wait_ms: 900, message: 'busy' }),
    );
    expect(waiting.notice).toEqual({ attempt: 2, maxAttempts: 3, waitMs: 900, reason: 'busy' });
    expect(reduceChat(waiting, chunk('a', { content: 'x' })).notice).toBeNull();
  });
});

describe('the run of a chat', () => {
  test('a stop stays in sight until the end', () => {
    const stopping = play(SENT, { kind: 'stopping' }, RUN, { kind: 'reconnecting' });
    expect(stopping.run).toEqual({ id: 'r', phase: 'stopping' });
    const ended = reduceChat(stopping, { kind: 'ended', ended: { how: 'stopped', trouble: null } });
    expect([ended.run, ended.ended?.how]).toEqual([null, 'stopped']);
  });

  test('what comes after a break shows that the connection is back', () => {
    const broken = play(SENT, RUN, { kind: 'reconnecting' });
    expect(broken.run?.phase).toBe('reconnecting');
    expect(reduceChat(broken, chunk('a')).run?.phase).toBe('running');
  });

  test('a refused message goes away again, and says why', () => {
    const state = play(SENT, {
      kind: 'refused',
      messageId: 'h1',
      trouble: { kind: 'busy', detail: 'busy' },
      interrupts: [],
    });
    expect(shown(state)).toEqual([]);
    expect(state.ended).toEqual({ how: 'refused', trouble: { kind: 'busy', detail: 'busy' } });
  });

  test('a retry goes on from the checkpoint where there is one, else sends the newest message again', () => {
    const failed: ChatEvent = { kind: 'ended', ended: { how: 'failed', trouble: null } };
    const loaded = (next: string[], interrupts: unknown[] = []): ChatEvent => ({
      kind: 'loaded',
      values: { messages: [human('h1', 'hi'), ai('a', 'sorry')] },
      next,
      interrupts,
    });
    expect(retryPlan(play(loaded(['model']), failed))).toEqual({ how: 'continue' });
    expect(retryPlan(play(loaded([]), failed))).toEqual({ how: 'resend', text: 'hi' });
    expect(retryPlan(play(loaded(['review'], [{ value: 'ok?' }])))).toEqual({ how: 'resend', text: 'hi' });
    expect(retryPlan(play(SENT))).toBeNull();
    expect(retryPlan(play())).toBeNull();
  });
});

test('a turn that is answered anew is put away from its question on; what is not known changes nothing', () => {
  const messages = [human('h1', 'one'), ai('a1', 'One.'), human('h2', 'two'), ai('a2', 'T'), ai('a3', 'wo.')];
  const settled = play({ kind: 'loaded', values: { messages }, next: [], interrupts: [] });
  const rewound = (messageId: string) => shown(reduceChat(settled, { kind: 'rewound', messageId }));
  expect(rewound('a3')).toEqual(['human:h1:one', 'ai:a1:One.']);
  expect(rewound('h2')).toEqual(['human:h1:one', 'ai:a1:One.']);
  expect(rewound('h1')).toEqual([]);
  expect(rewound('nobody')).toHaveLength(5);
});

test('events of sub-agents make tasks by their call, and others do not', () => {
  const custom = (data: object) => part('custom', data);
  const state = play(
    SENT,
    RUN,
    custom({ type: 'task_started', task_id: 'c1', description: 'Look' }),
    custom({ type: 'task_completed', task_id: 'c1', result: 'Done' }),
    custom({ type: 'batch_progress', task_id: 'c2' }),
  );
  expect([...state.tasks].map(([id, task]) => [id, task.status, task.result])).toEqual([['c1', 'completed', 'Done']]);
});

test('a goal comes and goes with the state, and a snapshot without one says nothing about it', () => {
  const goal = {
    objective: 'all green',
    continuation_count: 2,
    max_continuations: 8,
    last_evaluation: { reason: 'red' },
  };
  const set = play(part('values', { messages: [], goal }));
  expect(set.goal).toEqual({ objective: 'all green', turns: 2, mostTurns: 8, missing: 'red' });
  const after = (event: ChatEvent) => reduceChat(set, event).goal;
  expect(after(part('values', { messages: [] }))).toEqual(set.goal);
  expect(after(part('values', { messages: [], goal: null }))).toBeNull();
  expect(after({ kind: 'loaded', values: { messages: [] }, next: [], interrupts: [] })).toBeNull();
  expect(play(part('values', { goal: { objective: ' ' } })).goal).toBeNull();
});
