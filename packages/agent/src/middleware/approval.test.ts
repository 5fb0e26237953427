import { type AIMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { Command, MemorySaver } from '@langchain/langgraph';
import { makeRun } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { approvalMiddleware } from './approval.ts';

const ask = (tools: readonly string[], expireAfterMs: number | null = null, clock = testSurroundings().clock) =>
  approvalMiddleware({ tools, expireAfterMs }, clock);

function setUp(turns: readonly Turn[], tools: readonly string[] = ['bash'], context: Record<string, unknown> = {}) {
  const ran: string[] = [];
  const make = (name: string) =>
    tool(
      ({ command }) => {
        ran.push(`${name} ${command}`);
        return `${name} ${command} ran`;
      },
      { name, description: name, schema: z.object({ command: z.string() }) },
    );
  const model = new FakeModel(turns);
  const { start } = fixture({ model, tools: [make('bash'), make('look')], middleware: [ask(tools)] });
  const saver = new MemorySaver();
  let count = 0;
  const rows = recordedAttempt().rows;
  const request = { ...makeRun().request, context: context as never };
  const step = (input: unknown) => {
    const attempt = recordedAttempt({ attempt: ++count, rows, run: makeRun({ request }) });
    return drain(start(saver, attempt), input, attempt);
  };
  return {
    ran,
    model,
    say: (text: string) => step({ messages: [new HumanMessage(text)] }),
    answer: (...decisions: unknown[]) => step(new Command({ resume: { decisions } })),
    step,
  };
}

const bash = (command: string, id?: string) => ({
  name: 'bash',
  args: { command },
  ...(id === undefined ? {} : { id }),
});
const look = (command: string) => ({ name: 'look', args: { command } });
const done: Turn = { text: 'done' };

test('asks about the calls that need it, and runs what was approved', async () => {
  const { ran, say, answer, model } = setUp([{ calls: [look('a'), bash('ls')] }, { calls: [bash('rm -rf /')] }, done]);
  const asked = await say('go');
  expect(asked.interrupts.map((item) => item.value)).toEqual([
    {
      actionRequests: [{ name: 'bash', args: { command: 'ls' }, description: 'The agent wants to use bash.' }],
      reviewConfigs: [{ actionName: 'bash', allowedDecisions: ['approve', 'edit', 'reject'] }],
    },
  ]);
  expect(ran).toEqual([]);
  const next = await answer({ type: 'approve' });
  expect(ran.toSorted()).toEqual(['bash ls', 'look a']);
  // The model, asked again, wants something else: that is a question of its own.
  expect(model.requests).toHaveLength(2);
  expect(next.interrupts[0]?.value).toMatchObject({ actionRequests: [{ args: { command: 'rm -rf /' } }] });
});

test('each decision counts for its own call; the calls keep their places', async () => {
  const { ran, say, answer } = setUp([{ calls: [bash('one', 'a'), bash('two', 'b'), bash('three', 'c')] }, done]);
  await say('go');
  const { messages } = await answer(
    { type: 'reject', message: 'too risky' },
    { type: 'edit', editedAction: { name: 'bash', args: { command: 'TWO' } } },
    { type: 'approve' },
  );
  expect(ran.toSorted()).toEqual(['bash TWO', 'bash three']);
  expect((messages[1] as AIMessage).tool_calls?.map((call) => [call.id, call.args.command])).toEqual([
    ['a', 'one'],
    ['b', 'TWO'],
    ['c', 'three'],
  ]);
  const results = messages.filter(ToolMessage.isInstance);
  expect(results.map((message) => [message.tool_call_id, message.text])).toEqual([
    ['a', 'The user did not allow this call of bash: too risky'],
    ['b', 'bash TWO ran'],
    ['c', 'bash three ran'],
  ]);
  expect(messages.at(-1)?.text).toBe('done');
});

test('when all are rejected nothing runs, and the model hears of it', async () => {
  const { ran, say, answer, model } = setUp([{ calls: [bash('one')] }, done]);
  await say('go');
  const { messages } = await answer({ type: 'reject' });
  expect(ran).toEqual([]);
  expect(model.requests[1]?.at(-1)?.text).toBe('The user did not allow this call of bash.');
  expect(messages.at(-1)?.text).toBe('done');
});

test('an answer that does not fit is asked for again, and the thread is not stuck', async () => {
  const { ran, say, step, answer } = setUp([{ calls: [bash('one')] }, done]);
  await say('go');
  for (const [wrong, problem] of [
    ['yes', /Answer with/],
    [{ decisions: [] }, /1 decisions are needed, 0 came/],
    [{ decisions: [{ type: 'maybe' }] }, /type must be one of/],
    [{ decisions: [{ type: 'edit', editedAction: { name: 'bash', args: 'x' } }] }, /needs a name and an object/],
  ] as const) {
    const again = await step(new Command({ resume: wrong }));
    expect(again.interrupts.map((item) => (item.value as { error?: string }).error)).toEqual([
      expect.stringMatching(problem),
    ]);
    expect(ran).toEqual([]);
  }
  await answer({ type: 'approve' });
  expect(ran).toEqual(['bash one']);
});

test('a run may ask for more questions, never for fewer', async () => {
  const more = setUp([{ calls: [look('a')] }, done], ['bash'], { interrupt_on: { look: true, bash: false } });
  expect((await more.say('go')).interrupts).toHaveLength(1);
  const fewer = setUp([{ calls: [bash('a')] }, done], ['bash'], { interrupt_on: { bash: false } });
  expect((await fewer.say('go')).interrupts).toHaveLength(1);
  const all = setUp([{ calls: [look('a')] }, done], ['*']);
  expect((await all.say('go')).interrupts).toHaveLength(1);
  const none = setUp([{ calls: [bash('a')] }, done], [], { interrupt_on: 'nonsense' });
  expect((await none.say('go')).interrupts).toHaveLength(0);
  expect(none.ran).toEqual(['bash a']);
});

test.each([
  ['the operator took the tool off the list', [ask([])]],
  ['approvals stand under another name', [{ ...ask([]), name: 'renamed' }]],
])('a refusal counts although %s after the question', async (_when, later) => {
  const ran: string[] = [];
  const run = tool(({ command }) => ran.push(command) && 'ran', {
    name: 'bash',
    description: 'bash',
    schema: z.object({ command: z.string() }),
  });
  const model = new FakeModel([{ calls: [bash('reboot')] }, done]);
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const before = fixture({ model, tools: [run], middleware: [ask(['bash'])] });
  await drain(before.start(saver, first), { messages: [new HumanMessage('go')] }, first);
  const after = fixture({ model, tools: [run], middleware: later as never });
  const second = recordedAttempt({ attempt: 2, rows: first.rows });
  await drain(after.start(saver, second), new Command({ resume: { decisions: [{ type: 'reject' }] } }), second);
  expect(ran).toEqual([]);
});

test('a question expires: a late yes is a no, and the time counts from the first asking', async () => {
  const run = async (waits: readonly number[]) => {
    let now = 1_000_000;
    const clock = { ...testSurroundings().clock, now: () => now };
    const ran: string[] = [];
    const make = tool(({ command }) => ran.push(command) && 'ran', {
      name: 'bash',
      description: 'bash',
      schema: z.object({ command: z.string() }),
    });
    const model = new FakeModel([{ calls: [bash('reboot')] }, done]);
    const saver = new MemorySaver();
    const { start } = fixture({ model, tools: [make], middleware: [ask(['bash'], 60_000, clock)] });
    const attempt = recordedAttempt();
    let outcome = await drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
    const shown = outcome.interrupts.map((item) => (item.value as { expires_at?: string }).expires_at);
    for (const [index, wait] of waits.entries()) {
      now += wait;
      const last = index === waits.length - 1;
      const answer = last ? { decisions: [{ type: 'approve' }] } : { decisions: [] };
      const next = recordedAttempt({ rows: attempt.rows });
      outcome = await drain(start(saver, next), new Command({ resume: answer }), next);
      if (!last) shown.push(...outcome.interrupts.map((item) => (item.value as { expires_at?: string }).expires_at));
    }
    return { ran, shown, messages: outcome.messages };
  };
  const inTime = await run([59_000]);
  expect(inTime.ran).toEqual(['reboot']);
  expect(inTime.shown).toEqual([new Date(1_060_000).toISOString()]);
  // Asked again after a wrong answer: the time that was given stays.
  const late = await run([40_000, 40_000]);
  expect(late.ran).toEqual([]);
  expect(late.shown).toEqual([new Date(1_060_000).toISOString(), new Date(1_060_000).toISOString()]);
  expect(late.messages.find((message) => message.type === 'tool')?.text).toMatch(/time to approve it had run out/);
  expect(late.messages.at(-1)?.text).toBe('done');
});
