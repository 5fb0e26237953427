import { AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { NO_LOG, NO_USAGE } from '@reindeer/protocol';
import { makeRun, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { canonicalise, isInOrder } from '../history/canonicalise.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { ReplyModel } from '../test-support/reply-model.ts';
import { runLoop } from '../test-support/run-loop.ts';
import {
  modelLengthMiddleware,
  SAFETY_TERMINATION,
  type SafetyDetector,
  safetyFinishMiddleware,
} from './finish-reason.ts';
import {
  callKey,
  callsKey,
  DEFAULT_LOOP_DETECTION,
  type LoopDetectionSettings,
  loopDetectionMiddleware,
} from './loop-detection.ts';
import { isStopped, stoppedMessage } from './stopping.ts';
import { terminalResponseMiddleware } from './terminal-response.ts';
import { DEFAULT_TOKEN_BUDGET, type TokenBudgetSettings, tokenBudgetMiddleware } from './token-budget.ts';

const loops = (settings: Partial<LoopDetectionSettings> = {}) =>
  loopDetectionMiddleware({ ...DEFAULT_LOOP_DETECTION, ...settings });

/** `bash` answers what `answer` says of the command; one that throws fails. */
const bash = (answer: (command: string) => string) =>
  tool((args: { command: string }) => answer(args.command), {
    name: 'bash',
    description: 'b',
    schema: z.object({ command: z.string(), description: z.string().optional() }),
  });
const call = (command: string, id?: string) => ({
  name: 'bash',
  args: { command, description: `try ${Math.random()}` },
  ...(id === undefined ? {} : { id }),
});
const failing = (): string => {
  throw new Error(`no such program, at ${Math.random()}`);
};

async function play(
  turns: readonly Turn[],
  answer: (command: string) => string,
  settings: Partial<LoopDetectionSettings> = {},
) {
  const model = new FakeModel(turns);
  const outcome = await runLoop({
    model,
    tools: [bash(answer)] as never,
    middleware: [loops(settings)],
    input: [new HumanMessage('go')],
  });
  const warnings = model.requests.map((request) => request.filter((message) => message.name === 'loop_warning').length);
  return { ...outcome, model, warnings, results: outcome.messages.filter(ToolMessage.isInstance) };
}

describe('loop detection', () => {
  test(
    'the same failing call is warned of once, and stopped at the fifth; the history stays valid',
    verifies('MW-28', 'STOP'),
    async () => {
      const { model, messages, results, warnings, attempt } = await play(
        [{ text: 'Trying.', calls: [call('x')] }],
        failing,
      );
      // The fifth call does not run.
      expect(results).toHaveLength(4);
      expect(attempt.stopReasons).toEqual(['loop_capped']);
      const last = messages.at(-1) as AIMessage;
      expect(last.text).toMatch(/^Trying\.\s+\[Stopped: the same call of bash came 5 times/);
      expect(last.tool_calls).toEqual([]);
      expect(isStopped(last)).toBe(true);
      // The warning stands in the request after the third failure, behind all results, and in no state.
      expect(warnings).toEqual([0, 0, 0, 1, 0]);
      expect(model.requests[3]?.at(-1)?.name).toBe('loop_warning');
      expect(messages.some((message) => message.name === 'loop_warning')).toBe(false);
      for (const request of model.requests)
        expect(isInOrder(request.filter((message) => message.type !== 'system'))).toBe(true);
      expect(isInOrder(canonicalise(messages, { maxCharacters: 1e6 }))).toBe(true);
    },
  );

  test('sixty different calls that succeed are work', verifies('MW-28'), async () => {
    const turns: Turn[] = Array.from({ length: 60 }, (_, index) => ({ calls: [call(`step ${index}`)] }));
    const { results, attempt, warnings } = await play([...turns, { text: 'done' }], (command) => `did ${command}`);
    expect(results).toHaveLength(60);
    expect(attempt.stopReasons).toEqual([]);
    expect(warnings.every((count) => count === 0)).toBe(true);
  });

  test(
    'looking again at something that changes is no repeat; when it stays the same, it is',
    verifies('MW-28'),
    async () => {
      let value = 0;
      const turns: Turn[] = [...Array.from({ length: 8 }, () => ({ calls: [call('status')] })), { text: 'done' }];
      const changing = await play(turns, () => `at ${value++} %`);
      expect(changing.results).toHaveLength(8);
      const still = await play(turns, () => 'at 50 %');
      expect(still.results).toHaveLength(4);
      expect(still.attempt.stopReasons).toEqual(['loop_capped']);
    },
  );

  test('the window forgets, and the next message of the user starts anew', verifies('MW-28'), async () => {
    const mixed: Turn[] = [];
    for (let index = 0; index < 6; index++) {
      mixed.push({ calls: [call('same')] });
      for (let other = 0; other < 6; other++) mixed.push({ calls: [call(`other ${index} ${other}`)] });
    }
    const { attempt } = await play([...mixed, { text: 'done' }], () => 'ok', { windowSize: 10 });
    expect(attempt.stopReasons).toEqual([]);
    const saver = new MemorySaver();
    const model = new ReplyModel((messages) => {
      const since = messages.findLastIndex((message) => message.type === 'human' && message.name !== 'loop_warning');
      const done = messages.slice(since).filter((message) => message.type === 'ai').length;
      return done < 3 ? { calls: [call('same')] } : { text: 'done' };
    });
    for (const text of ['one', 'two', 'three']) {
      const outcome = await runLoop({
        model,
        tools: [bash(() => 'ok')] as never,
        middleware: [loops()],
        saver,
        input: [new HumanMessage(text)],
      });
      expect(outcome.attempt.stopReasons).toEqual([]);
    }
  });

  test('after a restart the count goes on', verifies('MW-28'), async () => {
    const turn = (index: number): BaseMessage[] => [
      new AIMessage({ content: '', id: `a${index}`, tool_calls: [{ ...call('x', `c${index}`), type: 'tool_call' }] }),
      new ToolMessage({ tool_call_id: `c${index}`, content: 'Error: no', status: 'error', name: 'bash' }),
    ];
    const outcome = await runLoop({
      model: new FakeModel([{ calls: [call('x')] }]),
      tools: [bash(() => 'never')] as never,
      middleware: [loops()],
      input: [new HumanMessage('go'), ...[0, 1, 2, 3].flatMap(turn)],
    });
    expect(outcome.attempt.stopReasons).toEqual(['loop_capped']);
  });

  test('failed and repeated calls of one tool add up; a tool’s own limits win', verifies('MW-28'), async () => {
    const turns: Turn[] = Array.from({ length: 12 }, (_, index) => ({ calls: [call(`attempt ${index}`)] }));
    const settings = { toolFreqWarn: 4, toolFreqHardLimit: 8 };
    const { results, attempt, warnings } = await play(turns, failing, settings);
    expect(attempt.stopReasons).toEqual(['loop_capped']);
    expect(results.length).toBeLessThanOrEqual(9);
    expect(warnings.filter((count) => count > 0)).toHaveLength(1);
    const own = await play([...turns, { text: 'done' }], failing, {
      ...settings,
      toolFreqOverrides: { bash: { warn: 50, hardLimit: 60 } },
    });
    expect(own.attempt.stopReasons).toEqual([]);
  });

  test('what makes calls the same: order, ranges, text or object, and no descriptions', verifies('MW-28'), () => {
    const key = (name: string, args: unknown) => callKey({ name, args: args as never });
    expect(key('bash', { command: 'x', description: 'a' })).toBe(key('bash', { description: 'b', command: 'x' }));
    expect(key('bash', { command: 'x' })).not.toBe(key('bash', { command: 'y' }));
    expect(key('bash', '{"command":"x"}')).toBe(key('bash', { command: 'x' }));
    expect(key('read_file', { path: 'a', start_line: 10 })).toBe(key('read_file', { path: 'a', start_line: 150 }));
    expect(key('read_file', { path: 'a', start_line: 10 })).not.toBe(key('read_file', { path: 'a', start_line: 400 }));
    expect(key('write_file', { path: 'a', content: 'x' })).not.toBe(key('write_file', { path: 'a', content: 'y' }));
    expect(key('grep', { pattern: 'x', path: 'a' })).toBe(key('grep', { pattern: 'x', path: 'b' }));
    const calls = [call('a'), call('b')];
    expect(callsKey(calls)).toBe(callsKey(calls.toReversed()));
  });

  test('switched off it stops nothing', async () => {
    const turns = Array.from({ length: 8 }, () => ({ calls: [call('x')] }));
    const { results } = await play([...turns, { text: 'done' }], failing, { enabled: false });
    expect(results).toHaveLength(8);
  });
});

test(
  'a stopped message has lost its calls in every view, and kept its id, text and thinking',
  verifies('MW-28'),
  () => {
    const message = new AIMessage({
      id: 'm',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 's' },
        { type: 'text', text: 'half' },
        { type: 'tool_use', id: 'c1', name: 'bash', input: {} },
      ],
      tool_calls: [
        { name: 'bash', args: {}, id: 'c1', type: 'tool_call' },
        { name: 'bash', args: {} },
      ],
      invalid_tool_calls: [{ name: 'bash', args: '{', id: 'c2', error: 'x', type: 'invalid_tool_call' }],
      additional_kwargs: {
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'bash', arguments: '{}' } }],
        function_call: { name: 'bash', arguments: '{}' },
        reasoning_content: 'hm',
      },
      response_metadata: { finish_reason: 'tool_calls' },
    });
    const stopped = stoppedMessage(message, '[Stopped]', 'loop_capped');
    expect(stopped.id).toBe('m');
    expect([stopped.tool_calls, stopped.invalid_tool_calls]).toEqual([[], []]);
    expect(stopped.additional_kwargs).toEqual({ reasoning_content: 'hm', reindeer_stopped_by: 'loop_capped' });
    expect(stopped.response_metadata.finish_reason).toBe('stop');
    expect(stopped.content).toEqual([
      { type: 'thinking', thinking: 'hm', signature: 's' },
      { type: 'text', text: 'half' },
      { type: 'text', text: '[Stopped]' },
    ]);
  },
);

describe('token budget', () => {
  const usage = (total: number) => ({ input_tokens: total - 10, output_tokens: 10, total_tokens: total });
  const run = async (settings: Partial<TokenBudgetSettings>, total: number, earlier = 0) => {
    const model = new FakeModel([{ calls: [call('x')], usage: usage(total) }]);
    const before = { ...NO_USAGE, inputTokens: earlier, totalTokens: earlier };
    const attempt = recordedAttempt({ run: makeRun({ usage: before }) });
    let count = 0;
    const outcome = await runLoop({
      model,
      attempt,
      tools: [bash(() => `${count++}`)] as never,
      middleware: [tokenBudgetMiddleware({ ...DEFAULT_TOKEN_BUDGET, enabled: true, ...settings })],
      input: [new HumanMessage('go')],
    });
    const warned = model.requests.filter((request) => request.some((message) => message.name === 'budget_warning'));
    return { ...outcome, calls: model.requests.length, warned: warned.length };
  };

  test('warns once, and ends the turn at the limit', verifies('MW-29', 'STOP'), async () => {
    const { calls, warned, attempt, messages } = await run({ maxTokens: 1_000 }, 100);
    expect(calls).toBe(10);
    expect(warned).toBe(1);
    expect(attempt.stopReasons).toEqual(['token_capped']);
    expect(messages.at(-1)?.text).toMatch(/budget of 1000 tokens/);
    expect((messages.at(-1) as AIMessage).tool_calls).toEqual([]);
  });

  test(
    'input and output have limits of their own, and what an earlier attempt used counts',
    verifies('MW-29'),
    async () => {
      expect((await run({ maxTokens: 1e9, maxInputTokens: 270 }, 100)).calls).toBe(3);
      expect((await run({ maxTokens: 1e9, maxOutputTokens: 40 }, 100)).calls).toBe(4);
      expect((await run({ maxTokens: 1_000 }, 100, 700)).calls).toBe(3);
    },
  );
});

describe('why the provider ended an answer', () => {
  const model = (fields: object, then: object) => {
    const made = new FakeModel([]);
    let asked = 0;
    // One whole message: what a provider says at its end stands in its metadata.
    made._streamResponseChunks = async function* () {
      asked++;
      yield { message: new AIMessage((asked === 1 ? fields : then) as never), text: '' } as never;
    };
    return made;
  };
  const run = async (
    fields: object,
    detectors?: readonly SafetyDetector[],
    withTools = false,
    then: object = fields,
  ) => {
    const outcome = await runLoop({
      model: model(fields, then),
      tools: [bash(() => 'ran')] as never,
      middleware: [
        terminalResponseMiddleware(),
        modelLengthMiddleware(),
        safetyFinishMiddleware(
          { enabled: true, detectors: null },
          NO_LOG,
          ...(detectors === undefined ? [] : [detectors]),
        ),
      ],
      input: withTools
        ? [
            new HumanMessage('go'),
            new AIMessage({
              content: '',
              tool_calls: [{ name: 'bash', args: { command: 'x' }, id: 'c', type: 'tool_call' }],
            }),
            new ToolMessage({ tool_call_id: 'c', content: 'ok' }),
          ]
        : [new HumanMessage('go')],
    });
    return { ...outcome, last: outcome.messages.at(-1) as AIMessage };
  };

  test(
    'cut off at its length: the run says so; with calls, or with another reason first, it does not',
    verifies('MW-33', 'STOP'),
    async () => {
      for (const metadata of [
        { finish_reason: 'length' },
        { stop_reason: 'max_tokens' },
        { finishReason: 'MAX_TOKENS' },
      ])
        expect((await run({ content: 'half', response_metadata: metadata })).attempt.stopReasons).toEqual([
          'model_length_capped',
        ]);
      expect(
        (await run({ content: 'whole', response_metadata: { finish_reason: 'stop' } })).attempt.stopReasons,
      ).toEqual([]);
      expect((await run({ content: '', response_metadata: { finish_reason: 'length' } })).attempt.stopReasons).toEqual(
        [],
      );
      const cut = { content: 'half', tool_calls: calls, response_metadata: { finish_reason: 'length' } };
      expect((await run(cut, undefined, false, { content: 'whole' })).attempt.stopReasons).toEqual([]);
    },
  );

  const calls = [{ name: 'bash', args: { command: 'secret words' }, id: 'c1', type: 'tool_call' }];
  test(
    'filtered with open calls: none runs, the text stays, the user is told, and no argument is in the event',
    verifies('MW-34', 'STOP'),
    async () => {
      for (const metadata of [
        { finish_reason: 'content_filter' },
        { stop_reason: 'refusal' },
        { finishReason: 'SAFETY' },
        { finishReason: 'IMAGE_SAFETY' },
      ]) {
        const { last, attempt, messages } = await run({
          content: 'Half an answer',
          tool_calls: calls,
          response_metadata: metadata,
        });
        expect(messages.some(ToolMessage.isInstance)).toBe(false);
        expect(last.tool_calls).toEqual([]);
        expect(last.text).toMatch(/^Half an answer\s+\[The model provider's safety filter/);
        expect(last.additional_kwargs[SAFETY_TERMINATION]).toMatchObject({ reason: Object.values(metadata)[0] });
        expect(attempt.stopReasons).toEqual(['safety_capped']);
        expect(attempt.emitted).toMatchObject([{ type: 'safety_termination', tools: ['bash'] }]);
        expect(JSON.stringify(attempt.emitted)).not.toContain('secret words');
      }
    },
  );

  test(
    'filtered and blank: the explanation is the answer, also after tools; with text and no calls it passes',
    verifies('MW-34'),
    async () => {
      const filtered = { finish_reason: 'content_filter' };
      expect((await run({ content: '', response_metadata: filtered })).last.text).toMatch(/safety filter/);
      // Not asked for again, as an empty answer would be.
      const after = await run({ content: '', response_metadata: filtered }, undefined, true);
      expect(after.last.text).toMatch(/safety filter/);
      expect(after.attempt.failures).toEqual([]);
      const whole = await run({ content: 'An answer', response_metadata: filtered });
      expect(whole.last.text).toBe('An answer');
      expect(whole.attempt.stopReasons).toEqual([]);
    },
  );

  test('a detector that fails is skipped', verifies('MW-34'), async () => {
    const broken: SafetyDetector = {
      name: 'broken',
      detect: () => {
        throw new Error('x');
      },
    };
    const always: SafetyDetector = { name: 'always', detect: () => 'because' };
    const { last } = await run({ content: '', tool_calls: calls }, [broken, always]);
    expect(last.additional_kwargs[SAFETY_TERMINATION]).toEqual({ detector: 'always', reason: 'because' });
  });
});
