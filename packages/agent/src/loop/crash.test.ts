import { HumanMessage, type ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { Command, interrupt, MemorySaver } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { makeRun } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { type RecordedAttempt, recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';

/**
 * Three parallel tools: one ends, a repeatable one and another one never do. The first attempt is then abandoned, as after a kill:
 * its pending writes and journal rows are what a second attempt finds.
 */
async function crashed() {
  const starts: string[] = [];
  const hang = new Promise<never>(() => {});
  let crash = true;
  const make = (name: string, hangs: boolean, metadata: Record<string, unknown> = {}) =>
    tool(
      async () => {
        starts.push(name);
        if (hangs && crash) await hang;
        return `${name} done`;
      },
      { name, description: name, schema: z.object({}), metadata } as never,
    );
  const tools = [make('quick', false), make('slow', true), make('reader', true, { repeatable: true })];
  const model = new FakeModel([
    {
      calls: [
        { name: 'slow', args: {} },
        { name: 'quick', args: {} },
        { name: 'reader', args: {} },
      ],
    },
    { text: 'end' },
  ]);
  const { start } = fixture({ model, tools: tools as never });
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const wrote = Promise.withResolvers<void>();
  const putWrites = saver.putWrites.bind(saver);
  saver.putWrites = async (...args) => {
    await putWrites(...args);
    if (JSON.stringify(args[1]).includes('quick done')) wrote.resolve();
  };
  void drain(start(saver, first), { messages: [new HumanMessage('go')] }, first).catch(() => {});
  await wrote.promise;
  crash = false;
  return { starts, model, saver, start, rows: first.rows };
}

test('after a crash finished tools stay finished, readers run again, and the rest is reported unknown', async () => {
  const { starts, model, saver, start, rows } = await crashed();
  const second = recordedAttempt({ attempt: 2, rows });
  const { messages } = await drain(start(saver, second), null, second);
  expect(starts.toSorted()).toEqual(['quick', 'reader', 'reader', 'slow']);
  const results = messages.filter((message): message is ToolMessage => message.type === 'tool');
  expect(results.map((message) => message.text)).toEqual([
    expect.stringMatching(/^Error: the outcome of slow is unknown/),
    'quick done',
    'reader done',
  ]);
  expect(results[0]?.status).toBe('error');
  expect(new Set(messages.map((message) => message.id)).size).toBe(messages.length);
  expect(messages.at(-1)?.text).toBe('end');
  expect(model.requests).toHaveLength(2);
});

test('a finished call answers from the journal when its checkpoint write was lost', async () => {
  let runs = 0;
  const once = tool(() => `run ${++runs}`, { name: 'once', description: 'once', schema: z.object({}) });
  const model = new FakeModel([{ calls: [{ name: 'once', args: {} }] }, { text: 'end' }]);
  const { start } = fixture({ model, tools: [once] });
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const finished = Promise.withResolvers<void>();
  const lost: RecordedAttempt = {
    ...first,
    journal: {
      ...first.journal,
      async finish(call) {
        await first.journal.finish(call);
        finished.resolve();
        return new Promise<never>(() => {});
      },
    },
  };
  void drain(start(saver, lost), { messages: [new HumanMessage('go')] }, lost).catch(() => {});
  await finished.promise;
  const second = recordedAttempt({ attempt: 2, rows: first.rows });
  const { messages } = await drain(start(saver, second), null, second);
  expect(runs).toBe(1);
  expect(messages.map((message) => message.text)).toEqual(['go', '', 'run 1', 'end']);
});

test('a holder that lost the run starts no tool and fails', async () => {
  let runs = 0;
  const once = tool(() => String(++runs), { name: 'once', description: 'once', schema: z.object({}) });
  const model = new FakeModel([{ calls: [{ name: 'once', args: {} }] }]);
  const { start } = fixture({ model, tools: [once] });
  const attempt = recordedAttempt({ fenced: true });
  const failure = await drain(start(new MemorySaver(), attempt), { messages: [new HumanMessage('go')] }, attempt).catch(
    (error: unknown) => error,
  );
  expect(ReindeerError.is(failure) && failure.code).toBe('fenced');
  expect(runs).toBe(0);
});

test('an abort is answered at once; the tool counts as live until it ends, and nothing is stored of it', async () => {
  const started = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const slow = tool(
    async () => {
      started.resolve();
      await release.promise;
      return 'late';
    },
    { name: 'slow', description: 'slow', schema: z.object({}) },
  );
  const model = new FakeModel([{ calls: [{ name: 'slow', args: {} }] }, { text: 'next' }]);
  const { start } = fixture({ model, tools: [slow] });
  const saver = new MemorySaver();
  const attempt = recordedAttempt();
  const running = drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt);
  await started.promise;
  attempt.abort();
  await expect(running).rejects.toThrow();
  expect(attempt.effects.live()).toEqual(['tool slow']);
  release.resolve();
  expect(await attempt.effects.stopped(1_000)).toEqual([]);

  const next = recordedAttempt({ attempt: 2 });
  const { messages } = await drain(start(saver, next), { messages: [new HumanMessage('hi')] }, next);
  expect(messages.map((message) => message.type)).toEqual(['human', 'ai', 'human', 'ai']);
  expect(model.requests[1]?.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'human']);
});

test('text of an answer that was stopped is no state', async () => {
  const attempt = recordedAttempt();
  const model = new FakeModel([{ text: 'one two three' }, { text: 'whole' }]);
  const stream = model._streamResponseChunks.bind(model);
  let cut = true;
  model._streamResponseChunks = async function* (messages, options) {
    for await (const piece of stream(messages, options)) {
      yield piece;
      if (cut) attempt.abort();
    }
  };
  const { start } = fixture({ model });
  const saver = new MemorySaver();
  await expect(drain(start(saver, attempt), { messages: [new HumanMessage('go')] }, attempt)).rejects.toThrow();
  expect(attempt.pushed.length).toBeGreaterThan(0);
  cut = false;
  const next = recordedAttempt({ attempt: 2 });
  const { messages } = await drain(start(saver, next), { messages: [new HumanMessage('again')] }, next);
  expect(messages.map((message) => message.text)).toEqual(['go', 'again', 'whole']);
});

test('a tool that asks a person begins again with the answer, once', async () => {
  const answers: unknown[] = [];
  const finish = Promise.withResolvers<void>();
  let hang = false;
  const asks = tool(
    async () => {
      answers.push(interrupt('which one?'));
      if (hang) {
        finish.resolve();
        await new Promise<never>(() => {});
      }
      return `chose ${String(answers.at(-1))}`;
    },
    { name: 'asks', description: 'asks', schema: z.object({}) },
  );
  const asking: Turn = { calls: [{ name: 'asks', args: {} }] };
  const { start } = fixture({
    model: new FakeModel([asking, { text: 'end' }, asking, { text: 'end' }]),
    tools: [asks],
  });
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const { rows } = first;
  const asked = await drain(start(saver, first), { messages: [new HumanMessage('go')] }, first);
  expect(asked.interrupts.map((item) => item.value)).toEqual(['which one?']);
  const second = recordedAttempt({ rows });
  const { messages } = await drain(start(saver, second), new Command({ resume: 'red' }), second);
  expect(messages.map((message) => message.text)).toEqual(['go', '', 'chose red', 'end']);
  expect(answers).toEqual(['red']);

  // The same again, but the process dies after the answer: what the tool did with it, nobody knows.
  hang = true;
  const third = recordedAttempt({ rows });
  await drain(start(saver, third), { messages: [new HumanMessage('more')] }, third);
  const fourth = recordedAttempt({ rows });
  void drain(start(saver, fourth), new Command({ resume: 'blue' }), fourth).catch(() => {});
  await finish.promise;
  const fifth = recordedAttempt({ rows, attempt: 2 });
  const after = await drain(start(saver, fifth), null, fifth);
  expect(after.messages.at(-2)?.text).toMatch(/outcome of asks is unknown/);
  expect(answers).toEqual(['red', 'blue']);
});

test('an answer lets the tool begin again that asked, and no other that a crash left unfinished', async () => {
  const starts: string[] = [];
  const hanging = Promise.withResolvers<void>();
  let crash = true;
  const asks = tool(
    async () => {
      const answer = String(interrupt('sure?'));
      starts.push(`asks: ${answer}`);
      if (answer !== 'dies') return answer;
      hanging.resolve();
      return new Promise<never>(() => {});
    },
    { name: 'asks', description: 'asks', schema: z.object({}) },
  );
  const pays = tool(
    async () => {
      starts.push('pays');
      if (crash) await new Promise<never>(() => {});
      return 'paid';
    },
    { name: 'pays', description: 'pays', schema: z.object({}) },
  );
  const calls = [
    { name: 'asks', args: {} },
    { name: 'pays', args: {} },
  ];
  const { start } = fixture({ model: new FakeModel([{ calls }, { text: 'end' }]), tools: [asks, pays] });
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const { rows } = first;
  const asked = Promise.withResolvers<void>();
  const putWrites = saver.putWrites.bind(saver);
  saver.putWrites = async (...args) => {
    await putWrites(...args);
    if (JSON.stringify(args[1]).includes('sure?')) asked.resolve();
  };
  void drain(start(saver, first), { messages: [new HumanMessage('go')] }, first).catch(() => {});
  await asked.promise;
  crash = false;

  // That run ended with its process (policy `error`); the answer comes in a run of its own, whose process dies as well.
  const second = recordedAttempt({ rows, run: makeRun({ runId: 'run-2' }) });
  void drain(start(saver, second), new Command({ resume: 'dies' }), second).catch(() => {});
  await hanging.promise;
  const third = recordedAttempt({ rows, run: makeRun({ runId: 'run-3' }) });
  const { messages } = await drain(start(saver, third), new Command({ resume: 'yes' }), third);
  expect(starts).toEqual(['pays', 'asks: dies']);
  expect(messages.slice(2).map((message) => message.text)).toEqual([
    expect.stringMatching(/outcome of asks is unknown/),
    expect.stringMatching(/outcome of pays is unknown/),
    'end',
  ]);
});

test('a question that a crash interrupted is asked again', async () => {
  const answers: string[] = [];
  const asks = tool(
    async () => {
      answers.push(String(interrupt('sure?')));
      return 'done';
    },
    { name: 'asks', description: 'asks', schema: z.object({}) },
  );
  const { start } = fixture({
    model: new FakeModel([{ calls: [{ name: 'asks', args: {} }] }, { text: 'end' }]),
    tools: [asks],
  });
  const saver = new MemorySaver();
  const first = recordedAttempt();
  const { rows } = first;
  await drain(start(saver, first), { messages: [new HumanMessage('go')] }, first);
  const second = recordedAttempt({ rows, attempt: 2 });
  const again = await drain(start(saver, second), null, second);
  expect(again.interrupts.map((item) => item.value)).toEqual(['sure?']);
  const third = recordedAttempt({ rows, run: makeRun({ runId: 'run-2' }) });
  const { messages } = await drain(start(saver, third), new Command({ resume: 'yes' }), third);
  expect(answers).toEqual(['yes']);
  expect(messages.at(-1)?.text).toBe('end');
});
