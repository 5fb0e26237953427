import { AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { type ScriptedProvider, type ScriptRequest, startScriptedProvider, type Turn } from '@reindeer/scripted';
import { makeRun, verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import { ERROR_FALLBACK } from '../middleware/llm-errors.ts';
import { createModelRegistry } from '../models/registry.ts';
import { type RecordedAttempt, recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { createLeadAgent, DEFAULT_LEAD_AGENT_SETTINGS, type LeadAgentOptions } from './lead-agent.ts';
import { DEFAULT_SAFEGUARDS } from './safeguards.ts';

/**
 * Histories that poisoned other systems for good: each request that follows reaches a provider that refuses what the real ones refuse, through
 * the real client, with the whole chain of the lead agent.
 */

let provider: ScriptedProvider | null = null;
afterEach(async () => {
  await provider?.close();
  provider = null;
});

interface World {
  readonly saver: MemorySaver;
  /** Another process: nothing is known but what is stored. */
  restart(): void;
  say(
    text: string | null,
    more?: { attempt?: RecordedAttempt; messages?: BaseMessage[]; checkpoint?: string },
  ): Promise<{
    readonly messages: BaseMessage[];
    readonly values: Record<string, unknown>;
    readonly attempt: RecordedAttempt;
  }>;
  refused(): (string | null)[];
  provider(): ScriptedProvider;
}

let world_ = 0;
async function world(
  script: (request: ScriptRequest) => Turn,
  options: Partial<LeadAgentOptions> & { demandReasoning?: boolean; window?: number } = {},
): Promise<World> {
  const opened = await startScriptedProvider({ script, ...(options.demandReasoning ? { demandReasoning: true } : {}) });
  provider = opened;
  const surroundings = testSurroundings(`w${++world_}`);
  const create = () =>
    createLeadAgent({
      models: createModelRegistry({
        entries: [
          {
            name: 'm',
            use: 'openai',
            model: 'scripted',
            base_url: opened.openAiUrl,
            ...(options.window === undefined ? {} : { context_window: options.window }),
          },
        ],
        environment: {},
        logger: surroundings.logger,
      }),
      sandboxes: options.sandboxes ?? new MemorySandboxes({ exec: () => exited('ok\n') }),
      surroundings,
      ...options,
    });
  let agent = create();
  const saver = new MemorySaver();
  let runs = 0;
  return {
    saver,
    restart() {
      agent = create();
    },
    async say(text, more = {}) {
      const attempt = more.attempt ?? recordedAttempt({ run: makeRun({ runId: `run-${++runs}` }) });
      const graph = await agent.forAttempt(attempt, saver);
      const messages = more.messages ?? (text === null ? null : [new HumanMessage(text)]);
      const outcome = await drain(graph, messages === null ? null : { messages }, attempt, { recursionLimit: 400 });
      return outcome;
    },
    refused: () => opened.requests().map((entry) => entry.refused),
    provider: () => opened,
  };
}

const user = (request: ScriptRequest): string =>
  request.messages.findLast((message) => message.written === true)?.text ?? '';
const results = (request: ScriptRequest) => {
  const since = request.messages.findLastIndex((message) => message.written === true);
  return request.messages.slice(since + 1).filter((message) => message.role === 'tool');
};
const bash = (command: string, id?: string | null) => ({
  name: 'bash',
  args: { description: 'x', command },
  ...(id === undefined ? {} : { id }),
});
const none = (reasons: (string | null)[]): void => expect(reasons.filter((reason) => reason !== null)).toEqual([]);

describe('histories that poisoned other systems', () => {
  test('26: cancelled during a tool call; "hi" afterwards is a valid request', verifies('MW-7'), async () => {
    let entered: () => void = () => undefined;
    const reached = new Promise<void>((resolve) => {
      entered = resolve;
    });
    const sandboxes = new MemorySandboxes({
      exec: async ({ signal }) => {
        entered();
        await new Promise((resolve) => signal?.addEventListener('abort', resolve));
        return { ...exited(''), ended: 'aborted' };
      },
    });
    const {
      say,
      refused,
      provider: opened,
    } = await world((request) => (user(request) === 'hi' ? { text: 'hello' } : { toolCalls: [bash('sleep 60')] }), {
      sandboxes,
    });
    const attempt = recordedAttempt();
    const running = say('work', { attempt });
    running.catch(() => undefined);
    await reached;
    attempt.abort();
    await expect(running).rejects.toThrow();
    await attempt.effects.stopped(1_000);
    const { messages } = await say('hi');
    expect(messages.at(-1)?.text).toBe('hello');
    none(refused());
    const last = opened().requests().at(-1)?.body.messages as { role: string; content: string }[];
    expect(last.find((message) => message.role === 'tool')?.content).toMatch(/interrupted/);
  });

  test('34: an answer that is made again leaves what was said before it', async () => {
    let version = 1;
    const { say, saver, refused } = await world((request) => ({ text: `answer to ${user(request)}, ${version}` }));
    await say('h1');
    await say('h2');
    const points: { id: string; texts: string[] }[] = [];
    for await (const { checkpoint } of saver.list({ configurable: { thread_id: 'thread-1' } }))
      points.push({
        id: checkpoint.id,
        texts: ((checkpoint.channel_values.messages ?? []) as BaseMessage[]).map((message) => message.text),
      });
    const before = points.find(({ texts }) => texts.at(-1) === 'h2');
    version = 2;
    const attempt = recordedAttempt({ run: makeRun({ runId: 'again' }) });
    const surroundings = testSurroundings('again');
    const agent = createLeadAgent({
      models: createModelRegistry({
        entries: [{ name: 'm', use: 'openai', model: 'scripted', base_url: provider?.openAiUrl ?? '' }],
        environment: {},
        logger: surroundings.logger,
      }),
      sandboxes: new MemorySandboxes(),
      surroundings,
    });
    const graph = await agent.forAttempt(attempt, saver);
    const configurable = { thread_id: 'thread-1', checkpoint_id: before?.id };
    for await (const _ of await graph.stream(null, {
      configurable,
      streamMode: ['updates'],
      subgraphs: false,
      durability: 'sync',
    })) {
      // Reading makes it run.
    }
    const { values } = await graph.getState({ configurable: { thread_id: 'thread-1' } });
    expect((values.messages as BaseMessage[]).map((message) => message.text)).toEqual([
      'h1',
      'answer to h1, 1',
      'h2',
      'answer to h2, 2',
    ]);
    none(refused());
  });

  test(
    '36: twice the window and no summariser: one cut, marked for ever; a restart does not overflow again',
    verifies('CTX-1'),
    async () => {
      const limit = 40_000;
      const summarization = { ...DEFAULT_SAFEGUARDS.summarization, enabled: false };
      let overflows = 0;
      const { say, restart, refused } = await world(
        (request) => {
          const size = request.messages.reduce((sum, message) => sum + message.text.length, 0);
          if (size <= limit) return { text: `fine, ${user(request)}` };
          overflows++;
          return {
            fault: { kind: 'status', status: 400, message: "This model's maximum context length is 10000 tokens" },
          };
        },
        {
          settings: {
            safeguards: { ...DEFAULT_SAFEGUARDS, summarization },
            llmCall: { ...DEFAULT_LEAD_AGENT_SETTINGS.llmCall, retryMaxAttempts: 1 },
          },
        },
      );
      const old: BaseMessage[] = [];
      for (let index = 0; index < 40; index++)
        old.push(
          new HumanMessage({ id: `u${index}`, content: 'x'.repeat(1_000) }),
          new AIMessage({ id: `a${index}`, content: 'y'.repeat(1_000) }),
        );
      const first = await say(null, { messages: [...old, new HumanMessage({ id: 'last', content: 'the question' })] });
      expect(first.messages.at(-1)?.text).toBe('fine, the question');
      expect(first.values.compaction).toMatchObject({ count: 1, how: 'truncated' });
      expect(overflows).toBeLessThanOrEqual(2);
      const atFirst = overflows;
      restart();
      const second = await say('and now');
      expect(second.messages.at(-1)?.text).toBe('fine, and now');
      expect(overflows).toBe(atFirst);
      expect(second.values.compaction).toMatchObject({ count: 1 });
      none(refused());
    },
  );

  test(
    '44: a call without a name, without an id and with half its arguments is answered, and the thread lives on',
    verifies('MW-7'),
    async () => {
      const { say, refused } = await world((request) => {
        if (user(request) === 'again') return { text: 'still here' };
        return results(request).length === 0
          ? { toolCalls: [{ name: '', id: null, args: '{' }] }
          : { text: `saw: ${results(request).at(-1)?.text}` };
      });
      const first = await say('go');
      expect(first.messages.find(ToolMessage.isInstance)?.status).toBe('error');
      expect(first.messages.at(-1)?.text).toMatch(/^saw: Error/);
      expect((await say('again')).messages.at(-1)?.text).toBe('still here');
      none(refused());
    },
  );

  test('a result that was cut inside of a character is no end of the thread', verifies('MW-7', 'MW-2'), async () => {
    // One letter before them: whatever even length is cut off, it is between the halves of a pair.
    const sandboxes = new MemorySandboxes({ exec: () => exited(`x${'🦌'.repeat(20_000)}`) });
    const { say, refused } = await world(
      (request) => (results(request).length === 0 ? { toolCalls: [bash('deer \ud83e')] } : { text: 'many' }),
      { sandboxes },
    );
    expect((await say('count \udd8c')).messages.at(-1)?.text).toBe('many');
    expect((await say('again')).messages.at(-1)?.text).toBe('many');
    none(refused());
  });

  test('45: a provider that wants its reasoning back gets it, over several turns', verifies('MOD-5d'), async () => {
    const { say, refused } = await world(
      (request) =>
        results(request).length < 2
          ? { reasoning: `thinking ${results(request).length}`, toolCalls: [bash('ls')] }
          : { reasoning: 'done thinking', text: 'done' },
      { demandReasoning: true },
    );
    expect((await say('go')).messages.at(-1)?.text).toBe('done');
    expect((await say('and again')).messages.at(-1)?.text).toBe('done');
    none(refused());
  });

  test(
    '46: reasoning alone after tools is asked for once more, and then a visible failure',
    verifies('MW-32'),
    async () => {
      const {
        say,
        refused,
        provider: opened,
      } = await world((request) =>
        results(request).length === 0 ? { toolCalls: [bash('ls')] } : { reasoning: 'I think that is all' },
      );
      const { messages, attempt } = await say('go');
      expect(opened().requests()).toHaveLength(3);
      expect(messages.at(-1)?.additional_kwargs[ERROR_FALLBACK]).toBe(true);
      expect(messages.at(-1)?.text).not.toBe('');
      expect(attempt.failures).toHaveLength(1);
      none(refused());
      const next = await say('hello?');
      expect(next.messages.at(-1)?.additional_kwargs[ERROR_FALLBACK]).toBe(true);
      none(refused());
    },
  );

  test(
    '47: sixty different commands are work; five equal failing ones are a loop, and the history stays valid',
    verifies('MW-28'),
    async () => {
      const sandboxes = new MemorySandboxes({
        exec: ({ command }) => (command === 'fails' ? exited('no such file', 1) : exited(`did ${command}`)),
      });
      const { say, refused } = await world(
        (request) => {
          if (user(request) === 'work')
            return results(request).length < 60
              ? { toolCalls: [bash(`step ${results(request).length}`)] }
              : { text: 'all done' };
          if (user(request) === 'loop') return { toolCalls: [bash('fails')] };
          return { text: 'fine' };
        },
        { sandboxes },
      );
      const work = await say('work');
      expect(work.messages.at(-1)?.text).toBe('all done');
      expect(work.attempt.stopReasons).toEqual([]);
      const loop = await say('loop');
      expect(loop.attempt.stopReasons).toEqual(['loop_capped']);
      expect(sandboxes.commands.filter(({ command }) => command === 'fails')).toHaveLength(4);
      expect((await say('and?')).messages.at(-1)?.text).toBe('fine');
      none(refused());
    },
  );
});
