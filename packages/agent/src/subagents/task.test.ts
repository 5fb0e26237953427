import type { ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { deferred, flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { ERROR_FALLBACK } from '../middleware/llm-errors.ts';
import { wrappedInput } from '../safety/tags.ts';
import { delegatingAttempt, delegation, results, task, types } from '../test-support/delegation.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { isChild, ReplyModel } from '../test-support/reply-model.ts';

const USAGE = { input_tokens: 10, output_tokens: 5, total_tokens: 15 };
const bash = { name: 'bash', args: { description: 'x', command: 'sleep 60' } };
const promptOf = (messages: readonly { type: string; text: string }[]): string =>
  messages.find((message) => message.type === 'human')?.text ?? '';

/** A sandbox whose commands run until they are told to stop. */
function endless() {
  const started: string[] = [];
  const ended: string[] = [];
  let hold: Promise<unknown> = Promise.resolve();
  const sandboxes = new MemorySandboxes({
    exec: ({ command, signal }) =>
      new Promise((resolve) => {
        started.push(command);
        signal?.addEventListener('abort', () => {
          void hold.then(() => {
            ended.push(command);
            resolve({ ...exited(''), ended: 'aborted' });
          });
        });
      }),
  });
  return { sandboxes, started, ended, holdEnds: (until: Promise<unknown>) => (hold = until) };
}

test(
  'a task runs in a context of its own, and only its result returns, with its metadata',
  verifies('TOOL-7a', 'SA-13', 'SA-24'),
  async () => {
    const attempt = delegatingAttempt();
    const world = delegation({
      lead: [{ text: 'Delegating.', calls: [task('count words', 'general-purpose', 'c1')] }, { text: 'All done.' }],
      child: (messages) =>
        messages.some((message) => message.type === 'tool')
          ? { text: '42 words.', usage: USAGE }
          : { text: 'Looking.', calls: [{ name: 'bash', args: { description: 'x', command: 'wc' } }], usage: USAGE },
    });
    const outcome = await world.run({ attempt });
    expect(outcome.messages.map((message) => [message.type, message.text])).toEqual([
      ['human', 'go'],
      ['ai', 'Delegating.'],
      ['tool', '42 words.'],
      ['ai', 'All done.'],
    ]);
    expect(results(outcome)[0]?.additional_kwargs).toMatchObject({
      subagent_status: 'completed',
      subagent_result_brief: '42 words.',
      subagent_token_usage: { input_tokens: 20, output_tokens: 10, total_tokens: 30 },
      subagent_model_name: 'fake-1',
      subagent_type: 'general-purpose',
      subagent_description: 'do count words',
    });
    expect(outcome.values.delegations).toMatchObject([{ run_id: 'run-1', status: 'completed', tool_call_id: 'c1' }]);
    // Its requests hold one system message and nothing of the conversation.
    const children = world.model.requests.filter(isChild);
    expect(children).toHaveLength(2);
    for (const request of children) {
      expect(request.filter((message) => message.type === 'system')).toHaveLength(1);
      expect(request.map((message) => message.text)).not.toContain('go');
    }
    expect(children[0]?.[1]?.text).toBe(wrappedInput('count words'));
    // Tokens and messages of the two do not mix.
    const namespace = String(results(outcome)[0]?.additional_kwargs.subagent_execution_id);
    const spoken = (ns: string): string =>
      attempt.pushed
        .filter((_, index) => attempt.pushedTo[index] === ns)
        .map((chunk) => chunk.content)
        .join('');
    expect(spoken('')).toBe('Delegating.All done.');
    expect(spoken(namespace)).toBe('Looking.42 words.');
    expect(attempt.counted.reduce((sum, usage) => sum + usage.inputTokens, 0)).toBe(20);
  },
);

test('events tell of start, each step once, and the end', verifies('TOOL-7a', 'SA-14'), async () => {
  const attempt = delegatingAttempt();
  await delegation({
    lead: [{ calls: [task('a', 'general-purpose', 'c1')] }, { text: 'Done.' }],
    child: (messages) =>
      messages.some((message) => message.type === 'tool')
        ? { text: 'Answer.', usage: USAGE }
        : { calls: [bash, { ...bash, args: { description: 'y', command: 'ls' } }], usage: USAGE },
  }).run({ attempt });
  expect(types(attempt)).toEqual([
    'task_started',
    'task_running',
    'task_running',
    'task_running',
    'task_running',
    'task_completed',
  ]);
  const steps = attempt.events.flatMap(({ data }) => {
    const { message } = data as { message?: { type: string; name?: string } };
    return message === undefined ? [] : [message.type];
  });
  expect(steps).toEqual(['ai', 'tool', 'tool', 'ai']);
  const running = attempt.events.map(({ data }) => data as Record<string, unknown>).filter((data) => 'message' in data);
  expect(running.map((data) => data.message_index)).toEqual([1, 2, 3, 4]);
  expect(running.at(-1)).toMatchObject({
    total_messages: 4,
    model_name: 'fake-1',
    usage: { input_tokens: 20, output_tokens: 10, total_tokens: 30 },
  });
  for (const { ns, data } of attempt.events) {
    expect(ns).toBe('');
    expect(data).toMatchObject({ task_id: 'c1', subagent_type: 'general-purpose', description: 'do a' });
  }
  expect(attempt.events.at(-1)?.data).toMatchObject({ subagent_status: 'completed', model_name: 'fake-1' });
});

test(
  'a sub-agent cannot delegate, ask or present; bash has its five tools',
  verifies('SA-10', 'TOOL-7b', 'TOOL-7a'),
  async () => {
    const world = delegation({
      lead: [{ calls: [task('a'), task('b', 'bash')] }, { text: 'Done.' }],
      child: (messages) =>
        promptOf(messages) === 'a' && !messages.some((message) => message.type === 'tool')
          ? { calls: [task('nested')] }
          : { text: 'ok' },
    });
    const outcome = await world.run();
    const offered = world.model.bound.map((tools) => (tools as { name: string }[]).map((item) => item.name));
    const [general, shell] = [
      offered.find((names) => names.includes('grep') && !names.includes('task')),
      offered.find((names) => names.length === 5),
    ];
    expect(general?.toSorted()).toEqual([
      'bash',
      'glob',
      'grep',
      'list_uploaded_files',
      'ls',
      'read_file',
      'str_replace',
      'write_file',
    ]);
    expect(shell?.toSorted()).toEqual(['bash', 'ls', 'read_file', 'str_replace', 'write_file']);
    expect(offered.some((names) => names.includes('task') && names.includes('present_files'))).toBe(true);
    // The nested call was answered as that of an unknown tool, and started nothing.
    expect(world.model.requests.filter(isChild).map(promptOf)).not.toContain('nested');
    expect(results(outcome).map((message) => message.text)).toEqual(['ok', 'ok']);
  },
);

test(
  'without execution there is no bash type; without the option there is no task tool',
  verifies('TOOL-7b'),
  async () => {
    const world = delegation({
      lead: [{ calls: [task('a', 'bash')] }, { text: 'Done.' }],
      child: () => ({ text: 'never' }),
      sandboxes: new MemorySandboxes({ canExecute: false }),
    });
    const outcome = await world.run();
    expect(results(outcome)[0]?.text).toMatch(/^Error: there is no sub-agent "bash". Choose one of: general-purpose/);
    const off = await world.run({ context: { subagent_enabled: false } });
    expect(results(off)[0]?.text).toMatch(/task is not a valid tool/);
    expect(world.model.requests.filter(isChild)).toEqual([]);
  },
);

test('custom types have their own prompt, tools, model and limits', verifies('TOOL-7c'), async () => {
  const special = new FakeModel([{ text: 'From the special model.' }], 'special-1');
  const world = delegation({
    lead: [{ calls: [task('a', 'reviewer')] }, { text: 'Done.' }],
    child: () => ({ text: 'wrong model' }),
    models: { special },
    settings: {
      custom: {
        reviewer: {
          description: 'Reviews.',
          systemPrompt: 'You review.',
          tools: ['read_file', 'task', 'ls'],
          model: 'special',
        },
      },
      overrides: { reviewer: { maxTurns: 7, timeoutMs: 5_000 }, bash: { maxTurns: 3 } },
      maxTurns: 20,
    },
  });
  const outcome = await world.run();
  expect(results(outcome)[0]?.text).toBe('From the special model.');
  expect(results(outcome)[0]?.additional_kwargs.subagent_model_name).toBe('special');
  expect(special.requests[0]?.[0]?.text).toContain('You review.');
  expect((special.bound[0] as { name: string }[]).map((item) => item.name)).toEqual(['ls', 'read_file']);
  const all = world.subagents.types(true);
  expect([...all.values()].map((type) => [type.name, type.maxTurns, type.timeoutMs])).toEqual([
    ['general-purpose', 20, 1_800_000],
    ['bash', 3, 1_800_000],
    ['reviewer', 7, 5_000],
  ]);
  expect(() => delegation({ lead: [], child: () => ({}), settings: { overrides: { nobody: {} } } })).toThrow(
    /no sub-agent "nobody"/,
  );
});

test('four sub-agents side by side change no state of each other', verifies('SA-09'), async () => {
  const world = delegation({
    lead: [{ calls: ['a', 'b', 'c', 'd'].map((name) => task(name)) }, { text: 'Done.' }],
    child: (messages) =>
      messages.some((message) => message.type === 'tool')
        ? { text: `done ${promptOf(messages)}` }
        : {
            calls: [
              {
                name: 'write_file',
                args: { description: 'x', path: `/mnt/user-data/outputs/${promptOf(messages)}`, content: 'x' },
              },
            ],
          },
    settings: {
      maxConcurrentPerTurn: 4,
      capacity: { maxRunning: 4, maxQueued: 4, policy: 'queue', queueTimeoutMs: 1 },
    },
  });
  const outcome = await world.run();
  expect(results(outcome).map((message) => message.text)).toEqual(['done a', 'done b', 'done c', 'done d']);
  expect(outcome.messages).toHaveLength(7);
  expect(world.sandboxes.contents.size).toBe(4);
  // One sandbox for all.
  expect(new Set(world.sandboxes.acquired)).toEqual(new Set(['box-thread-1']));
});

test(
  'a sub-agent has the model that its run chose, and the turns and time of its type',
  verifies('TOOL-7a', 'TOOL-7b'),
  async () => {
    const chosen = new ReplyModel((messages) =>
      isChild(messages)
        ? { text: 'from the chosen one' }
        : messages.some((message) => message.type === 'tool')
          ? { text: 'Done.' }
          : { calls: [task('a')] },
    );
    const world = delegation({
      lead: [{ text: 'wrong model' }],
      child: () => ({ text: 'wrong model' }),
      models: { chosen },
    });
    const outcome = await world.run({ context: { model_name: 'chosen' } });
    expect(results(outcome)[0]?.text).toBe('from the chosen one');
    expect(world.model.requests).toEqual([]);
    expect([...world.subagents.types(true).values()].map((type) => [type.name, type.maxTurns, type.timeoutMs])).toEqual(
      [
        ['general-purpose', 150, 1_800_000],
        ['bash', 60, 1_800_000],
      ],
    );
  },
);

test('a sub-agent keeps the user, the thread and the options of the run', verifies('SA-09', 'TOOL-7a'), async () => {
  const seen: Record<string, unknown>[] = [];
  const look = tool(
    (_args, config) => {
      const { configurable, context } = config as unknown as Record<string, Record<string, unknown>>;
      seen.push({ thread: configurable?.thread_id, ...context });
      return 'seen';
    },
    { name: 'look', description: 'looks', schema: z.object({}) },
  );
  const world = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: (messages) =>
      messages.some((message) => message.type === 'tool') ? { text: 'ok' } : { calls: [{ name: 'look', args: {} }] },
    agent: { tools: [look] },
  });
  const attempt = delegatingAttempt();
  const graph = await world.agent.forAttempt(attempt, new MemorySaver());
  const stream = await graph.stream(
    { messages: [{ type: 'human', content: 'go' }] },
    {
      configurable: { thread_id: 'thread-1' },
      context: { user_id: 'ann', channel_name: 'mail', subagent_enabled: true },
      streamMode: ['updates'],
      subgraphs: true,
      durability: 'sync',
    },
  );
  for await (const _ of stream);
  expect(seen).toEqual([
    { thread: 'thread-1', user_id: 'ann', channel_name: 'mail', subagent_enabled: false, is_subagent: true },
  ]);
});

test(
  'out of time: it reads timed_out, is told to stop, and what comes later does not count',
  verifies('SA-25', 'SA-28'),
  async () => {
    const { sandboxes, started, ended } = endless();
    const world = delegation({
      lead: [{ calls: [task('slow')] }, { text: 'Done.' }],
      child: () => ({ calls: [bash] }),
      sandboxes,
      settings: { timeoutMs: 1_000 },
    });
    const attempt = delegatingAttempt();
    const running = world.run({ attempt });
    await until(() => started.length === 1);
    await world.surroundings.clock.advance(999);
    expect(ended).toEqual([]);
    await world.surroundings.clock.advance(1);
    const outcome = await running;
    expect(ended).toHaveLength(1);
    expect(results(outcome)[0]?.additional_kwargs.subagent_status).toBe('timed_out');
    expect(results(outcome)[0]?.status).toBe('error');
    expect(types(attempt).filter((type) => type !== 'task_running')).toEqual(['task_started', 'task_timed_out']);
    expect(world.subagents.executions.size).toBe(0);
    expect(world.subagents.capacity.state.running).toEqual([]);
    expect(world.surroundings.clock.sleeping).toBe(0);
  },
);

test(
  'one that does not end holds its slot and its record until it does, after its call was answered',
  verifies('SA-08', 'SA-28', 'SA-30'),
  async () => {
    const { sandboxes, started, holdEnds } = endless();
    const stubborn = deferred();
    holdEnds(stubborn.promise);
    const world = delegation({
      lead: [{ calls: [task('slow')] }, { text: 'Done.' }],
      child: () => ({ calls: [bash] }),
      sandboxes,
      settings: { timeoutMs: 1_000, endGraceMs: 500 },
    });
    const attempt = delegatingAttempt();
    const running = world.run({ attempt });
    await until(() => started.length === 1);
    await world.surroundings.clock.advance(1_500);
    const outcome = await running;
    expect(results(outcome)[0]?.additional_kwargs.subagent_status).toBe('timed_out');
    expect(world.subagents.capacity.state.running).toHaveLength(1);
    expect(world.subagents.executions.size).toBe(1);
    expect(attempt.effects.live()).toContain('sub-agent general-purpose');
    const draining = world.subagents.drain(1_000);
    await world.surroundings.clock.advance(1_000);
    expect(await draining).toEqual(['sub-agent general-purpose']);
    stubborn.resolve();
    await until(() => world.subagents.executions.size === 0);
    expect(world.subagents.capacity.state.running).toEqual([]);
    expect(await world.subagents.drain(1_000)).toEqual([]);
    expect(world.surroundings.clock.sleeping).toBe(0);
  },
);

test(
  'cancelling the run ends every sub-agent and its commands; their usage counts once and nothing leaks',
  verifies('SA-05', 'SA-07', 'SA-25'),
  async () => {
    const { sandboxes, started, ended } = endless();
    const world = delegation({
      lead: [{ calls: ['a', 'b', 'c'].map((name) => task(name)) }],
      child: () => ({ calls: [bash], usage: USAGE }),
      sandboxes,
      settings: { capacity: { maxRunning: 2, maxQueued: 8, policy: 'queue', queueTimeoutMs: 60_000 } },
    });
    const attempt = delegatingAttempt();
    const running = world.run({ attempt });
    running.catch(() => {});
    await until(() => started.length === 2);
    attempt.abort('cancelled');
    await expect(running).rejects.toThrow();
    expect(await attempt.effects.stopped(1_000)).toEqual([]);
    await flush();
    expect(ended).toHaveLength(2);
    // The third waited in the queue: it called no model.
    expect(world.model.requests.filter(isChild)).toHaveLength(2);
    expect(types(attempt).filter((type) => type === 'task_cancelled')).toHaveLength(3);
    expect(attempt.counted.filter((usage) => usage.inputTokens === 10)).toHaveLength(2);
    const rows = [...attempt.rows.values()].map(
      (row) => (row.result as { update: { messages: ToolMessage[] } } | null)?.update.messages[0],
    );
    expect(rows.filter((row) => row?.additional_kwargs.subagent_status === 'cancelled')).toHaveLength(3);
    expect(world.subagents.executions.size).toBe(0);
    expect(world.subagents.capacity.state).toMatchObject({ running: [], waiting: [] });
    expect(world.surroundings.clock.sleeping).toBe(0);
  },
);

test('a cancel in the middle of an answer stops it at the next piece', verifies('SA-05'), async () => {
  const attempt = delegatingAttempt();
  const world = delegation({
    lead: [{ calls: [task('a')] }],
    child: () => ({ text: 'one two three', before: async () => attempt.abort('cancelled') }),
  });
  await expect(world.run({ attempt })).rejects.toThrow();
  await attempt.effects.stopped(1_000);
  expect(attempt.pushed.some((chunk) => String(chunk.content).includes('one'))).toBe(false);
  await until(() => types(attempt).includes('task_cancelled'));
});

test('a call that meets a stopping run leaves no record', verifies('SA-07'), async () => {
  const attempt = delegatingAttempt();
  const world = delegation({ lead: [{ calls: [task('a')] }], child: () => ({ text: 'never' }) });
  const { track } = attempt.effects;
  attempt.effects.track = (name, work) => {
    if (name.startsWith('sub-agent')) attempt.abort('cancelled');
    return track(name, work);
  };
  await expect(world.run({ attempt })).rejects.toThrow();
  await until(() => world.subagents.executions.size === 0);
  expect(world.model.requests.filter(isChild)).toEqual([]);
});

test('two calls with the same provider id do not share anything', verifies('SA-03'), async () => {
  const world = delegation({
    lead: [
      { calls: [task('first', 'general-purpose', 'same')] },
      { calls: [task('second', 'general-purpose', 'same')] },
      { text: 'Done.' },
    ],
    child: (messages) => ({ text: `answer to ${promptOf(messages)}` }),
  });
  const outcome = await world.run();
  expect(results(outcome).map((message) => message.text)).toEqual(['answer to first', 'answer to second']);
  const ids = results(outcome).map((message) => message.additional_kwargs.subagent_execution_id);
  expect(new Set(ids).size).toBe(2);
});

test('a full queue and a policy of none refuse at once, and say so', verifies('SA-27'), async () => {
  for (const [policy, maxQueued] of [
    ['reject', 8],
    ['queue', 0],
  ] as const) {
    const { sandboxes, started } = endless();
    const world = delegation({
      lead: [{ calls: [task('a'), task('b')] }, { text: 'Done.' }],
      child: () => ({ calls: [bash] }),
      sandboxes,
      settings: { timeoutMs: 1_000, capacity: { maxRunning: 1, maxQueued, policy, queueTimeoutMs: 60_000 } },
    });
    const attempt = delegatingAttempt();
    const running = world.run({ attempt });
    await until(() => started.length === 1 && types(attempt).includes('task_failed'));
    await world.surroundings.clock.advance(1_000);
    const [first, second] = results(await running);
    expect(first?.additional_kwargs.subagent_status).toBe('timed_out');
    expect(second?.additional_kwargs).toMatchObject({ subagent_status: 'failed' });
    expect(second?.text).toMatch(policy === 'reject' ? /does not queue more/ : /Too many sub-agents are waiting/);
  }
});

test('a provider that fails for good fails the sub-agent, not the run', verifies('SA-16', 'SA-02'), async () => {
  const attempt = delegatingAttempt();
  const world = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: () => ({ error: Object.assign(new Error('bad key'), { status: 401 }) }),
  });
  const outcome = await world.run({ attempt });
  const [result] = results(outcome);
  expect(result?.additional_kwargs.subagent_status).toBe('failed');
  expect(result?.text).toMatch(/does not accept the configured key/);
  expect(result?.additional_kwargs[ERROR_FALLBACK]).toBeUndefined();
  expect(attempt.failures).toEqual([]);
  expect(outcome.messages.at(-1)?.text).toBe('Done.');
});

test('out of turns: what it had so far is the result; without any it has failed', verifies('SA-17'), async () => {
  const settings = { overrides: { 'general-purpose': { maxTurns: 3 } } };
  const talks = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: () => ({ text: 'So far 7.', calls: [{ name: 'bash', args: { description: 'x', command: 'ls' } }] }),
    settings,
  });
  const [partial] = results(await talks.run());
  expect(partial?.additional_kwargs).toMatchObject({
    subagent_status: 'completed',
    subagent_stop_reason: 'turn_capped',
  });
  expect(partial?.text).toContain('So far 7.');
  expect(talks.model.requests.filter(isChild)).toHaveLength(3);
  expect(talks.model.requests.filter(isChild)[2]?.at(-1)?.text).toMatch(/last turn/);
  const silent = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: () => ({ calls: [{ name: 'bash', args: { description: 'x', command: 'ls' } }] }),
    settings,
  });
  const [none] = results(await silent.run());
  expect(none?.additional_kwargs).toMatchObject({ subagent_status: 'failed', subagent_stop_reason: 'turn_capped' });
});

test('out of tokens: completed, with the reason; the budget is its own', verifies('SA-18'), async () => {
  const attempt = delegatingAttempt();
  const world = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: () => ({
      text: 'Half.',
      calls: [{ name: 'bash', args: { description: 'x', command: 'ls' } }],
      usage: USAGE,
    }),
    settings: { tokenBudget: { maxTokens: 40, warnAt: 0.7 } },
  });
  const [result] = results(await world.run({ attempt }));
  expect(result?.additional_kwargs).toMatchObject({
    subagent_status: 'completed',
    subagent_stop_reason: 'token_capped',
  });
  const children = world.model.requests.filter(isChild);
  expect(children).toHaveLength(3);
  expect(children[1]?.at(-1)?.text).not.toMatch(/budget/);
  expect(children[2]?.at(-1)?.text).toMatch(/75 % of your token budget/);
  expect(attempt.stopReasons).toEqual([]);
});

test('skills that cannot be loaded fail the sub-agent before a model is called', verifies('SA-12'), async () => {
  const world = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: () => ({ text: 'never' }),
    options: { loadSkills: () => Promise.reject(new Error('no such skill')) },
  });
  const [result] = results(await world.run());
  expect(result?.additional_kwargs).toMatchObject({ subagent_status: 'failed', subagent_error: 'no such skill' });
  expect(world.model.requests.filter(isChild)).toEqual([]);
});

test('the skills of a sub-agent stand before its task as the harness’s word, and the task as somebody else’s', async () => {
  const skills = '<skill_system>\n- research: finds things\n</skill_system>';
  const world = delegation({
    lead: [{ calls: [task('count <system>')] }, { text: 'Done.' }],
    child: () => ({ text: 'counted' }),
    options: { loadSkills: async () => skills },
  });
  await world.run();
  const [request] = world.model.requests.filter(isChild);
  expect(request?.slice(1).map((message) => message.text)).toEqual([skills, wrappedInput('count &lt;system>')]);
  expect(request?.[1]?.additional_kwargs.hide_from_ui).toBe(true);
});

test('delegating is no way around an approval', verifies('MW-36'), async () => {
  const world = delegation({
    lead: [{ calls: [task('a')] }, { text: 'Done.' }],
    child: (messages) =>
      messages.some((message) => message.type === 'tool')
        ? { text: messages.at(-1)?.text ?? '' }
        : { calls: [{ name: 'bash', args: { description: 'x', command: 'ls' } }] },
    agent: { settings: { approvals: ['bash'] } },
  });
  const [result] = results(await world.run());
  expect(result?.text).toMatch(/bash needs the approval of a person/);
  expect(world.sandboxes.commands).toEqual([]);
});

/** Waits for something that other promises bring about. */
async function until(holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 2_000 && !holds(); turn += 1) await flush(1);
  expect(holds()).toBe(true);
}
