import { MemorySaver } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { deferred, flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { asWritten, delegatingAttempt, delegation, results, task, types } from '../test-support/delegation.ts';
import type { RecordedAttempt, RecordedEvent } from '../test-support/fake-attempt.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { isChild } from '../test-support/reply-model.ts';

type Messages = readonly { readonly type: string; readonly text: string }[];
const promptOf = (messages: Messages): string => messages.find((message) => message.type === 'human')?.text ?? '';
const turnOf = (messages: Messages): number => messages.filter((message) => message.type === 'ai').length;
const command = (text: string) => ({ name: 'bash', args: { description: 'x', command: text } });

/** A process on a thread's durable state: two sub-agents, `quick` which ends, and `slow` with two commands. */
function instance(hangs: boolean) {
  const commands: string[] = [];
  const reached = deferred();
  const sandboxes = new MemorySandboxes({
    exec: async (request) => {
      commands.push(request.command);
      if (hangs && request.command === 'second') {
        reached.resolve();
        await new Promise(() => {});
      }
      return exited('output');
    },
  });
  const world = delegation({
    lead: [{ calls: [task('quick'), task('slow')] }, { text: 'Done.' }],
    child: (messages) => {
      if (promptOf(messages) === 'quick')
        return { text: 'quick answer', usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 } };
      return (
        [{ calls: [command('first')] }, { calls: [command('second')] }, { text: 'slow answer' }][turnOf(messages)] ?? {}
      );
    },
    sandboxes,
  });
  const asked = () =>
    world.model.requests
      .filter(isChild)
      .map((request) => request.map(asWritten))
      .map((request) => `${promptOf(request)} ${turnOf(request)}`);
  const { run, model, sandboxes: boxes } = world;
  return { run, model, sandboxes: boxes, commands, asked, reached };
}

const fresh = () => ({
  saver: new MemorySaver(),
  rows: new Map() as RecordedAttempt['rows'],
  events: [] as RecordedEvent[],
});

test(
  'after a crash a finished sub-agent is not run again, and an unfinished one goes on at its own last checkpoint',
  verifies('TOOL-7a'),
  async () => {
    const state = fresh();
    const first = instance(true);
    const dead = delegatingAttempt({}, state);
    first.run({ saver: state.saver, attempt: dead }).catch(() => {});
    await first.reached.promise;
    await until(() => types(dead).includes('task_completed'));
    expect(first.asked().toSorted()).toEqual(['quick 0', 'slow 0', 'slow 1']);

    const second = instance(false);
    const attempt = delegatingAttempt({}, { ...state, attempt: 2 });
    const outcome = await second.run({ input: null, saver: state.saver, attempt });
    expect(results(outcome).map((message) => message.text)).toEqual(['quick answer', 'slow answer']);
    // The finished command did not run again; of the other nobody knows, and the sub-agent's model is told so.
    expect(second.commands).toEqual([]);
    expect(second.asked()).toEqual(['slow 2']);
    const told = second.model.requests.find(isChild)?.at(-1)?.text;
    expect(told).toMatch(/outcome of bash is unknown/);
    expect(outcome.messages.map((message) => message.type)).toEqual(['human', 'ai', 'tool', 'tool', 'ai']);
    // Events of both attempts together: each once.
    const steps = attempt.events.filter(({ data }) => (data as { type: string }).type === 'task_running');
    expect(new Set(steps.map(({ key }) => key)).size).toBe(steps.length);
    expect(steps).toHaveLength(6);
    expect(types(attempt).filter((type) => type === 'task_started')).toHaveLength(2);
    expect(types(attempt).filter((type) => type === 'task_completed')).toHaveLength(2);
  },
);

test('a sub-agent that had ended when its answer was lost is read, not run again', verifies('TOOL-7a'), async () => {
  const state = fresh();
  const first = instance(false);
  const dead = delegatingAttempt({}, state);
  const ended = deferred();
  let left = 2;
  const lost: RecordedAttempt = {
    ...dead,
    journal: {
      ...dead.journal,
      finish: async (call) => {
        // The results of the two `task` calls never reach the journal; those of commands do.
        if (!JSON.stringify(call.result).includes('subagent_status')) return dead.journal.finish(call);
        left -= 1;
        if (left === 0) ended.resolve();
        return new Promise(() => {});
      },
    },
  };
  first.run({ saver: state.saver, attempt: lost }).catch(() => {});
  await ended.promise;
  const second = instance(false);
  const outcome = await second.run({
    input: null,
    saver: state.saver,
    attempt: delegatingAttempt({}, { ...state, attempt: 2 }),
  });
  expect(results(outcome).map((message) => message.text)).toEqual(['quick answer', 'slow answer']);
  expect(results(outcome)[0]?.additional_kwargs.subagent_token_usage).toMatchObject({ total_tokens: 2 });
  expect(second.asked()).toEqual([]);
  expect(second.commands).toEqual([]);
});

test('a stop of the server leaves a sub-agent to the next attempt; a cancel does not', verifies('SA-07'), async () => {
  for (const stop of ['shutdown', 'cancelled'] as const) {
    const state = fresh();
    const first = instance(false);
    const attempt = delegatingAttempt({}, state);
    const begun = deferred();
    first.sandboxes.commands.push = (...items) => {
      begun.resolve();
      attempt.abort(stop);
      return items.length;
    };
    const running = first.run({ saver: state.saver, attempt });
    running.catch(() => {});
    await begun.promise;
    await expect(running).rejects.toThrow();
    await attempt.effects.stopped(1_000);
    await flush();
    expect(types(attempt).includes('task_cancelled')).toBe(stop === 'cancelled');
    const second = instance(false);
    const outcome = await second.run({
      input: null,
      saver: state.saver,
      attempt: delegatingAttempt({}, { ...state, attempt: 2 }),
    });
    const slow = results(outcome)[1];
    expect(slow?.additional_kwargs.subagent_status).toBe(stop === 'shutdown' ? 'completed' : 'cancelled');
    expect(second.asked().length > 0).toBe(stop === 'shutdown');
  }
});

test('a lost right or a silent store ends the attempt and leaves the sub-agent unfinished', async () => {
  for (const code of ['fenced', 'store_unavailable'] as const) {
    const state = fresh();
    const first = instance(false);
    const attempt = delegatingAttempt({}, state);
    const put = state.saver.put.bind(state.saver);
    state.saver.put = async (config, ...rest) => {
      const namespace = String(config.configurable?.checkpoint_ns ?? '');
      if (namespace !== '' && config.configurable?.checkpoint_id !== undefined) throw new ReindeerError(code, 'no');
      return put(config, ...rest);
    };
    const failure = await first.run({ saver: state.saver, attempt }).catch((error: unknown) => error);
    expect(ReindeerError.is(failure) && failure.code).toBe(code);
    await attempt.effects.stopped(1_000);
    state.saver.put = put;
    const second = instance(false);
    const outcome = await second.run({
      input: null,
      saver: state.saver,
      attempt: delegatingAttempt({}, { ...state, attempt: 2 }),
    });
    expect(results(outcome).map((message) => message.text)).toEqual(['quick answer', 'slow answer']);
  }
});

async function until(holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 2_000 && !holds(); turn += 1) await flush(1);
  expect(holds()).toBe(true);
}
