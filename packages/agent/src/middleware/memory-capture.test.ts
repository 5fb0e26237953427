import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { MemoryCapture } from '../context/memory-port.ts';
import { DEFAULT_SUMMARIZATION } from '../context/summarization.ts';
import { goalMiddleware } from '../goals/goal-middleware.ts';
import { createLeadAgent, type LeadAgentOptions, leadChain } from '../lead/lead-agent.ts';
import { DEFAULT_SAFEGUARDS } from '../lead/safeguards.ts';
import type { Middleware } from '../loop/middleware.ts';
import { createModelRegistry } from '../models/registry.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { memoryCaptureMiddleware } from './memory-capture.ts';
import { checkOrder } from './order.ts';

type Captured = Parameters<MemoryCapture['capture']>[0];

function world(capture: (input: Captured) => Promise<void>, more: readonly Middleware[] = []) {
  const surroundings = testSurroundings();
  const model = new FakeModel([{ text: 'one' }, { text: 'two' }]);
  const middleware = [memoryCaptureMiddleware({ capture }, 'Reindeer', surroundings), ...more];
  const { start } = fixture({ model, middleware });
  const run = async () => {
    const attempt = recordedAttempt();
    const outcome = await drain(start(new MemorySaver(), attempt), { messages: [new HumanMessage('I sail')] }, attempt);
    return { ...outcome, attempt };
  };
  return { run, surroundings, model };
}

describe('noting conversations', () => {
  test('once, when the turn has ended, for the user and the agent of the run', verifies('MW-22'), async () => {
    const captured: Captured[] = [];
    const { run } = world(async (input) => void captured.push(input));
    const { attempt } = await run();
    const { userId, threadId } = attempt.run;
    expect(captured).toMatchObject([{ userId, threadId, agentName: 'Reindeer', leaving: false }]);
    expect(captured[0]?.messages.map(({ type, text }) => `${type} ${text}`)).toEqual(['human I sail', 'ai one']);
  });

  test('a memory that fails costs the run a warning', verifies('MW-22'), async () => {
    const { run, surroundings } = world(() => Promise.reject(new Error('away')));
    const { messages } = await run();
    expect(messages.at(-1)?.text).toBe('one');
    expect(surroundings.logger.lines).toMatchObject([{ level: 'warn', fields: { reason: 'Error' } }]);
  });

  test(
    'the lead agent notes when its goal has let the turn end; without a memory nothing is noted',
    verifies('MW-22'),
    async () => {
      const surroundings = testSurroundings();
      const options: LeadAgentOptions = {
        models: createModelRegistry({
          entries: [{ name: 'fake', use: 'fake', model: 'fake' }],
          environment: {},
          logger: surroundings.logger,
          factories: { fake: () => new FakeModel([]) },
        }),
        sandboxes: new MemorySandboxes(),
        surroundings,
        capture: { capture: async () => {} },
      };
      const { capture: _capture, ...rest } = options;
      const list = leadChain(options);
      checkOrder(list);
      const names = list.map(({ name }) => name);
      expect(names.filter((name) => name === 'memory-capture')).toHaveLength(1);
      const evaluator = async () => new FakeModel([]);
      const wrong = [
        goalMiddleware({ surroundings, evaluator }),
        memoryCaptureMiddleware({ capture: async () => {} }, 'Reindeer', surroundings),
      ];
      expect(() => checkOrder(wrong)).toThrow('must stand before "goal"');
      expect(leadChain(rest).map(({ name }) => name)).not.toContain('memory-capture');
    },
  );

  test('what a compaction takes away is noted before', verifies('MEM-3'), async () => {
    const surroundings = testSurroundings();
    const captured: Captured[] = [];
    const summarization = {
      ...DEFAULT_SUMMARIZATION,
      triggers: [{ type: 'messages', value: 6 } as const],
      keep: { type: 'messages', value: 2 } as const,
    };
    const agent = createLeadAgent({
      models: createModelRegistry({
        entries: [{ name: 'fake', use: 'fake', model: 'fake' }],
        environment: {},
        logger: surroundings.logger,
        factories: { fake: () => new FakeModel([{ text: 'SUMMARY' }, { text: 'done' }]) },
      }),
      sandboxes: new MemorySandboxes(),
      surroundings,
      capture: { capture: async (input) => void captured.push(input) },
      settings: { safeguards: { ...DEFAULT_SAFEGUARDS, summarization } },
    });
    const attempt = recordedAttempt();
    const messages = Array.from({ length: 9 }, (_, index) =>
      index % 2 === 0
        ? new HumanMessage({ id: `m${index}`, content: `said ${index}` })
        : new AIMessage({ id: `m${index}`, content: `answered ${index}` }),
    );
    await drain(await agent.forAttempt(attempt, new MemorySaver()), { messages }, attempt);
    const { userId, threadId } = attempt.run;
    expect(captured.map(({ leaving }) => leaving)).toEqual([true, false]);
    expect(captured[0]).toMatchObject({ userId, threadId, agentName: 'Reindeer' });
    expect(captured[0]?.messages[0]?.text).toBe('said 0');
    // Together they are the whole conversation.
    const ids = new Set(captured.flatMap(({ messages: seen }) => seen.map(({ id }) => id)));
    for (const { id } of messages) expect(ids).toContain(id);
  });
});
