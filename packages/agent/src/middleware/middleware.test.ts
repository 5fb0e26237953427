import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { interrupt, MemorySaver } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createLeadAgent } from '../lead/lead-agent.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { createModelRegistry } from '../models/registry.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain, fixture, type LoopFixture, type Outcome, runLoop } from '../test-support/run-loop.ts';
import { askClarificationTool } from '../tools/ask-clarification.ts';
import { metaOfError, metaOfText, SUCCESS, TOOL_META } from '../tools/tool-meta.ts';
import { clarificationMiddleware } from './clarification.ts';
import { checkOrder, ORDER_RULES } from './order.ts';
import { DEFAULT_TITLE_SETTINGS, titleMiddleware } from './title.ts';
import { toolErrorsMiddleware } from './tool-errors.ts';

const go = (text = 'go'): HumanMessage[] => [new HumanMessage(text)];
const results = (outcome: Outcome): ToolMessage[] => outcome.messages.filter(ToolMessage.isInstance);

describe('tool errors', () => {
  const throwing = (error: unknown) =>
    tool(
      () => {
        throw error;
      },
      { name: 'broken', description: 'b', schema: z.object({ n: z.number().optional() }) },
    );
  const run = (error: unknown, args: Record<string, unknown> = {}) =>
    runLoop({
      model: new FakeModel([{ calls: [{ name: 'broken', args }] }, { text: 'done' }]),
      tools: [throwing(error)] as never,
      middleware: [toolErrorsMiddleware()],
      input: go(),
    });

  test(
    'what a tool throws becomes a short result without host details, and the run goes on',
    verifies('MW-13a'),
    async () => {
      const error = new RangeError(
        `bad index\n    at run (/srv/reindeer/dist/server.js:10:5)\nsee /home/me/.ssh/config ${'z'.repeat(900)}`,
      );
      const outcome = await run(error);
      const [message] = results(outcome);
      expect(message?.text).toMatch(/^Error: tool 'broken' failed with RangeError: bad index/);
      expect(message?.text).toMatch(/choose another tool\.$/);
      expect(message?.text).not.toMatch(/\/srv|\/home|:10:5/);
      expect(message?.text.length).toBeLessThan(700);
      expect(message?.status).toBe('error');
      expect(outcome.messages.at(-1)?.text).toBe('done');
    },
  );

  test('wrong arguments are named, without a stack trace', verifies('MW-13a'), async () => {
    const [message] = results(await run(new Error('never'), { n: 'x' }));
    expect(message?.text).toBe(
      'Error: Invalid arguments for broken: n: Invalid input: expected number, received string. Correct the arguments and call it again.',
    );
  });

  test('questions to a person, aborts and a lost run are no tool errors', verifies('MW-13a'), async () => {
    const asks = tool(() => String(interrupt('sure?')), {
      name: 'asks',
      description: 'a',
      schema: z.object({}),
      metadata: { resumable: true },
    } as never);
    const { start } = fixture({
      model: new FakeModel([{ calls: [{ name: 'asks', args: {} }] }]),
      tools: [asks] as never,
      middleware: [toolErrorsMiddleware()],
    });
    const attempt = recordedAttempt();
    const outcome = await drain(start(new MemorySaver(), attempt), { messages: go() }, attempt);
    expect(outcome.interrupts.map((item) => item.value)).toEqual(['sure?']);
    await expect(run(new ReindeerError('fenced', 'lost'))).rejects.toThrow('lost');
  });

  test('every result carries what became of it', verifies('MW-13b'), async () => {
    const [failed] = results(await run(new Error('404 not found')));
    expect(failed?.additional_kwargs[TOOL_META]).toEqual({
      status: 'error',
      error_type: 'not_found',
      recoverable_by_model: true,
      recommended_next_action: 'try_alternative',
      source: 'exception',
    });
    const fine = await runLoop({
      model: new FakeModel([{ calls: [{ name: 'fine', args: {} }] }, { text: 'done' }]),
      tools: [tool(() => 'all good', { name: 'fine', description: 'f', schema: z.object({}) })],
      middleware: [toolErrorsMiddleware()],
      input: go(),
    });
    expect(results(fine)[0]?.additional_kwargs[TOOL_META]).toMatchObject({ status: 'success', error_type: null });
  });

  test('what a tool said of its own result is not overruled by its text', verifies('MW-13b'), async () => {
    const said = new ToolMessage({
      tool_call_id: 'call',
      name: 'log',
      content: 'Error: disk full',
      status: 'success',
      additional_kwargs: { [TOOL_META]: SUCCESS },
    });
    const outcome = await runLoop({
      model: new FakeModel([{ calls: [{ name: 'log', args: {}, id: 'call' }] }, { text: 'done' }]),
      tools: [tool(() => said, { name: 'log', description: 'l', schema: z.object({}) })] as never,
      middleware: [toolErrorsMiddleware()],
      input: go(),
    });
    expect(results(outcome)[0]).toMatchObject({ status: 'success', additional_kwargs: { [TOOL_META]: SUCCESS } });
  });

  test('failures are read from texts, bodies, error pages and exceptions', verifies('MW-13b'), () => {
    const type = (text: string): unknown => metaOfText(text).error_type;
    expect(type('plain result with 404 in it')).toBeNull();
    expect(type('Error: 429 Too Many Requests')).toBe('rate_limited');
    expect(type('Error: 401 unauthorized')).toBe('auth');
    expect(type('Error: permission denied')).toBe('permission');
    expect(type('Error: no results')).toBe('no_results');
    expect(type('Error: connection timed out')).toBe('transient');
    expect(type('Error: who knows')).toBe('unknown');
    expect(type('{"error": {"message": "quota exceeded"}}')).toBe('rate_limited');
    expect(type('{"error": null, "data": 1}')).toBeNull();
    expect(type('# 404 Not Found\nsorry')).toBe('not_found');
    expect(type('# Just a moment...\n')).toBe('permission');
    expect(metaOfText('Error: 401').recommended_next_action).toBe('stop');
    expect(metaOfError(new ReindeerError('path_refused', 'x')).error_type).toBe('permission');
    expect(metaOfError(new TypeError('x is undefined')).error_type).toBe('internal');
  });
});

describe('clarification', () => {
  const ask = (args: Record<string, unknown>, id = 'q1'): Turn => ({
    calls: [{ name: 'ask_clarification', args, id }],
  });
  const run = (turn: Turn, more: Partial<LoopFixture> & { context?: Record<string, unknown> } = {}) =>
    runLoop({
      model: new FakeModel([turn, { text: 'never' }]),
      tools: [askClarificationTool(), ...(more.tools ?? [])],
      middleware: [clarificationMiddleware()],
      input: go(),
      ...(more.context === undefined ? {} : { context: more.context }),
    });
  const input = (outcome: Outcome): Record<string, unknown> => {
    const message = results(outcome).find((candidate) => candidate.name === 'ask_clarification');
    const artifact = message?.artifact as { human_input?: Record<string, unknown> } | undefined;
    return artifact?.human_input ?? {};
  };
  const base = { question: 'Which one?', clarification_type: 'approach_choice' };

  test('ends the turn with the question as text and as a request', verifies('MW-35', 'TOOL-5a'), async () => {
    const outcome = await run(ask({ ...base, context: 'Two ways.', options: ['fast', 'slow'] }));
    const [message] = results(outcome);
    expect(outcome.messages).toHaveLength(3);
    expect(message?.id).toBe('clarification:q1');
    expect(message?.text).toBe('Two ways.\n\n🔀 Which one?\n\n  1. fast\n  2. slow');
    expect(input(outcome)).toEqual({
      version: 1,
      kind: 'human_input_request',
      source: 'ask_clarification',
      request_id: 'clarification:q1',
      clarification_type: 'approach_choice',
      question: 'Which one?',
      context: 'Two ways.',
      input_mode: 'choice_with_other',
      options: ['fast', 'slow'],
    });
  });

  test('other calls of the message still run; the next turn goes on with the answer', verifies('MW-35'), async () => {
    const note = tool(() => 'noted', { name: 'note', description: 'n', schema: z.object({}) });
    const model = new FakeModel([
      {
        calls: [
          { name: 'ask_clarification', args: base, id: 'q1' },
          { name: 'note', args: {} },
        ],
      },
      { text: 'Then the fast one.' },
    ]);
    const { start } = fixture({
      model,
      tools: [askClarificationTool(), note] as never,
      middleware: [clarificationMiddleware()],
    });
    const saver = new MemorySaver();
    const attempt = recordedAttempt();
    const asked = await drain(start(saver, attempt), { messages: go() }, attempt);
    expect(results(asked).map((message) => message.text)).toEqual(['🔀 Which one?', 'noted']);
    expect(model.requests).toHaveLength(1);
    const next = recordedAttempt({ attempt: 2, rows: attempt.rows });
    const answered = await drain(start(saver, next), { messages: go('fast') }, next);
    expect(answered.messages.at(-1)?.text).toBe('Then the fast one.');
  });

  test('all five types have their sign; another one counts as missing information', verifies('TOOL-5a'), async () => {
    const signs: string[] = [];
    for (const type of [
      'missing_info',
      'ambiguous_requirement',
      'approach_choice',
      'risk_confirmation',
      'suggestion',
      'odd',
    ]) {
      const outcome = await run(ask({ question: 'Q', clarification_type: type }));
      signs.push(results(outcome)[0]?.text ?? '');
    }
    expect(signs).toEqual(['❓ Q', '🤔 Q', '🔀 Q', '⚠️ Q', '💡 Q', '❓ Q']);
  });

  test('options come in every shape: trimmed, without blanks and doubles', verifies('TOOL-5a'), async () => {
    for (const options of [
      [' a ', 'b', '', 'a'],
      '["a","b","a"]',
      { first: 'a', second: 'b' },
      [{ label: 'a' }, { value: 'b' }],
      [['a'], ['b']],
    ])
      expect(input(await run(ask({ ...base, options }))).options).toEqual(['a', 'b']);
    expect(input(await run(ask({ ...base, options: 'only this' }))).options).toEqual(['only this']);
    expect(input(await run(ask({ ...base, options: ['', ' '] }))).input_mode).toBe('free_text');
    expect(
      (
        input(await run(ask({ ...base, options: Array.from({ length: 40 }, (_, index) => `o${index}`) })))
          .options as string[]
      ).length,
    ).toBe(24);
  });

  test('a form goes before options, with its types', verifies('TOOL-5b'), async () => {
    const request = input(
      await run(
        ask({
          ...base,
          options: ['ignored'],
          fields: [
            { name: 'size', label: 'Size', type: 'select', options: ['S', 'M'], required: true },
            { name: 'note', type: 'wizard', placeholder: 'anything' },
            { name: 'empty', label: 'E', type: 'multi_select', options: [] },
          ],
        }),
      ),
    );
    expect(request).toMatchObject({
      version: 2,
      input_mode: 'form',
      fields: [
        { name: 'size', label: 'Size', type: 'select', options: ['S', 'M'], required: true },
        { name: 'note', label: 'note', type: 'text', placeholder: 'anything', required: false },
        { name: 'empty', type: 'text' },
      ],
    });
    expect(request.options).toBeUndefined();
  });

  test('a form that breaks any limit becomes a question as a whole', verifies('TOOL-5b'), async () => {
    const field = (index: number) => ({ name: `f${index}`, label: 'L', type: 'text' });
    const long = 'x'.repeat(201);
    const broken: unknown[] = [
      Array.from({ length: 17 }, (_, index) => field(index)),
      [field(1), field(1)],
      [{ ...field(1), name: '__proto__' }],
      [{ ...field(1), name: 'constructor' }],
      [{ ...field(1), label: long }],
      [{ ...field(1), type: 'select', options: Array.from({ length: 25 }, (_, index) => `o${index}`) }],
      [{ ...field(1), type: 'select', options: [long] }],
      [field(1), 'no object'],
      [{ label: 'no name' }],
      Array.from({ length: 16 }, (_, index) => ({
        name: `f${index}`,
        label: 'y'.repeat(200),
        type: 'select',
        options: Array.from({ length: 24 }, (_unused, option) => `${option}`.padEnd(190, 'z')),
      })),
    ];
    for (const fields of broken)
      expect(input(await run(ask({ ...base, fields, options: ['a'] })))).toMatchObject({
        version: 1,
        input_mode: 'choice_with_other',
        options: ['a'],
      });
  });

  test('where nobody may be asked, the model is told to go on', verifies('TOOL-5c'), async () => {
    const outcome = await run(ask(base), { context: { disable_clarification: true } });
    expect(results(outcome)[0]?.text).toMatch(/best judgement/);
    expect(outcome.messages.at(-1)?.text).toBe('never');
  });
});

describe('titles', () => {
  const titled = async (text: string, turns: readonly Turn[] = [{ text: 'hi' }], model: FakeModel | null = null) => {
    const middleware = titleMiddleware({ ...DEFAULT_TITLE_SETTINGS, model }, testSurroundings());
    return runLoop({ model: new FakeModel(turns), middleware: [middleware], input: go(text) });
  };

  test('the first words of the user, whole characters, ellipsis included', verifies('CTX-3'), async () => {
    expect((await titled('  Hello\n there ')).values.title).toBe('Hello there');
    const long = (await titled('🦌'.repeat(80))).values.title as string;
    expect([...long]).toHaveLength(50);
    expect(long.endsWith('🦌…')).toBe(true);
    expect((await titled(' ')).values.title).toBe('New Conversation');
  });

  test('a model’s title is cleaned and cut; any failure falls back to the first words', verifies('CTX-3'), async () => {
    const writing = (text: string): FakeModel => new FakeModel([{ text }]);
    expect((await titled('hello', undefined, writing('<think>hm</think> "A fine title."'))).values.title).toBe(
      'A fine title',
    );
    expect([...((await titled('hello', undefined, writing('w'.repeat(200)))).values.title as string)]).toHaveLength(60);
    expect((await titled('hello', undefined, writing('<think>never ends'))).values.title).toBe('hello');
    expect((await titled('hello', undefined, writing('one two three four five six seven'))).values.title).toBe(
      'one two three four five six',
    );
    const failing = await titled('hello', undefined, new FakeModel([{ error: new Error('down') }]));
    expect(failing.values.title).toBe('hello');
    expect(failing.messages.at(-1)?.text).toBe('hi');
    const model = writing('ok');
    await titled('q'.repeat(2_000), [{ text: 'a'.repeat(2_000) }], model);
    expect(model.requests[0]?.[0]?.text.length).toBeLessThan(1_250);
  });

  test('only the first exchange names a thread, and a name is kept', verifies('CTX-3'), async () => {
    const middleware = titleMiddleware(DEFAULT_TITLE_SETTINGS, testSurroundings());
    const { start } = fixture({ model: new FakeModel([{ text: 'hi' }]), middleware: [middleware] });
    const saver = new MemorySaver();
    const first = recordedAttempt();
    await drain(start(saver, first), { messages: go('one'), title: 'mine' }, first);
    const second = recordedAttempt({ attempt: 2 });
    expect((await drain(start(saver, second), { messages: go('two') }, second)).values.title).toBe('mine');
    const off = titleMiddleware({ ...DEFAULT_TITLE_SETTINGS, enabled: false }, testSurroundings());
    expect(
      (await runLoop({ model: new FakeModel([{ text: 'hi' }]), middleware: [off], input: go() })).values.title,
    ).toBeUndefined();
  });

  test(
    'a run that is cancelled before the first answer has named its thread; the one after it keeps the name',
    verifies('RT-12', 'CTX-3'),
    async () => {
      for (const model of [null, new FakeModel([{ text: 'By a model' }])]) {
        const middleware = titleMiddleware({ ...DEFAULT_TITLE_SETTINGS, model }, testSurroundings());
        const asked = Promise.withResolvers<void>();
        const never = {
          before: () => {
            asked.resolve();
            return new Promise<void>(() => undefined);
          },
        };
        const saver = new MemorySaver();
        const first = recordedAttempt();
        const cut = fixture({ model: new FakeModel([never]), middleware: [middleware] });
        const cancelled = drain(cut.start(saver, first), { messages: go('one') }, first);
        await asked.promise;
        first.abort();
        await expect(cancelled).rejects.toThrow();
        // Ids of its own: otherwise its message would take the place of the first.
        const { start } = fixture({ model: new FakeModel([{ text: 'hi' }]), middleware: [middleware], ids: 'second' });
        const second = recordedAttempt({ attempt: 2 });
        const { values } = await drain(start(saver, second), { messages: go('two') }, second);
        expect(values.title).toBe('one');
      }
    },
  );

  test('what the harness wrote is no message of the user', async () => {
    const hidden = new HumanMessage({ content: 'secret note', additional_kwargs: { hide_from_ui: true } });
    const middleware = titleMiddleware(DEFAULT_TITLE_SETTINGS, testSurroundings());
    const outcome = await runLoop({
      model: new FakeModel([{ text: 'hi' }]),
      middleware: [middleware],
      input: [hidden, ...go('real')],
    });
    expect(outcome.values.title).toBe('real');
  });
});

describe('order', () => {
  const named = (...names: string[]): Middleware[] => names.map((name) => defineMiddleware({ name }));

  test('each rule that is broken is named with both middlewares and its reason', verifies('MW-38'), () => {
    for (const rule of ORDER_RULES) {
      const other = rule.before === '*' ? 'anything' : rule.before;
      expect(() => checkOrder(named(other, rule.after))).not.toThrow();
      const broken = (): void => checkOrder(named(rule.after, other));
      expect(broken).toThrow(`"${other}" must stand before "${rule.after}"`);
      expect(broken).toThrow(rule.reason);
    }
  });

  test('an agent with a list in the wrong order cannot be made', verifies('MW-38'), () => {
    const surroundings = testSurroundings();
    const models = createModelRegistry({ entries: [], environment: {}, logger: surroundings.logger });
    const make = (middleware: Middleware[]) =>
      createLeadAgent({ models, sandboxes: new MemorySandboxes(), surroundings, middleware });
    expect(() => make(named('mine'))).not.toThrow();
    expect(() => make(named('clarification'))).toThrow(/listed twice|must stand before/);
    expect(() => make(named('thread-data'))).toThrow(ReindeerError);
  });
});
