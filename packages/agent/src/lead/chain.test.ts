import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { defineMiddleware } from '../loop/middleware.ts';
import { checkOrder, ORDER_RULES } from '../middleware/order.ts';
import { createModelRegistry } from '../models/registry.ts';
import { delegation, results, task } from '../test-support/delegation.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { createLeadAgent, DEFAULT_LEAD_AGENT_SETTINGS, type LeadAgentOptions, leadChain } from './lead-agent.ts';
import { DEFAULT_SAFEGUARDS } from './safeguards.ts';

const lead = (more: Partial<LeadAgentOptions> = {}, model = new FakeModel([{ text: 'ok' }])) => {
  const surroundings = testSurroundings();
  const options: LeadAgentOptions = {
    models: createModelRegistry({
      entries: [{ name: 'fake', use: 'fake', model: 'fake' }],
      environment: {},
      logger: surroundings.logger,
      factories: { fake: () => model },
    }),
    sandboxes: new MemorySandboxes({ exec: () => exited('ok') }),
    surroundings,
    ...more,
  };
  return { options, model };
};

describe('the chain', () => {
  test(
    'the real chain of the lead agent keeps every order rule, and the rules name what really stands in it',
    verifies('MW-38', 'MW-18'),
    () => {
      const names = leadChain(lead().options).map((middleware) => middleware.name);
      expect(names).toEqual([
        'input-sanitizing',
        'tool-output',
        'authorization',
        'thread-data',
        'uploads',
        'viewed-images',
        'skill-activation',
        'skill-policy',
        'sandbox',
        'dynamic-context',
        'durable-context',
        'approval',
        'llm-errors',
        'summarization',
        'tool-result-sanitizing',
        'secret-scrub',
        'tool-errors',
        'skill-guard',
        'guardrail',
        'bash-audit',
        'read-before-write',
        'delivery',
        'todos',
        'title',
        'goal',
        'token-budget',
        'terminal-response',
        'loop-detection',
        'model-length',
        'safety-finish',
        'coalescing',
        'clarification',
      ]);
      // Every rule bites: with its two sides the wrong way round the list is refused, by name and with the reason.
      const list = leadChain(lead().options);
      const both = ORDER_RULES.filter(({ before, after }) => names.includes(before) && names.includes(after));
      expect(both.length).toBeGreaterThan(15);
      for (const { before, after, reason } of both) {
        const [first, second] = [list.find(({ name }) => name === after), list.find(({ name }) => name === before)];
        const wrong = [first, second].filter((middleware) => middleware !== undefined);
        expect(() => checkOrder(wrong, [{ before, after, reason }])).toThrow(
          `Middleware "${before}" must stand before "${after}": ${reason}.`,
        );
      }
    },
  );

  test(
    'whoever adds something to the chain cannot stand outside of the sanitising, or behind the question to the user',
    verifies('MW-38'),
    () => {
      const own = defineMiddleware({ name: 'own' });
      const list = leadChain(lead({ middleware: [own] }).options);
      expect(() => checkOrder([own, ...list.filter((item) => item !== own)])).toThrow(
        'Middleware "input-sanitizing" must stand before "own"',
      );
      expect(() => checkOrder([...list.filter((item) => item !== own), own])).toThrow(
        'Middleware "own" must stand before "clarification"',
      );
      expect(list.indexOf(own)).toBeGreaterThan(list.findIndex((item) => item.name === 'tool-errors'));
      const late = defineMiddleware({ name: 'goal' });
      expect(() => createLeadAgent(lead({ middleware: [late] }).options)).toThrow('listed twice');
    },
  );

  const FILE = '/mnt/user-data/workspace/a.txt';
  const write = { name: 'write_file', args: { description: 'x', path: FILE, content: 'new' } };

  test(
    'the gate on writing stands by default, can be switched off, and holds for sub-agents',
    verifies('SG-11', 'MW-36'),
    async () => {
      const run = async (readBeforeWrite: boolean) => {
        const sandboxes = new MemorySandboxes().put(FILE, 'old');
        const { options } = lead(
          { sandboxes, settings: { safeguards: { ...DEFAULT_SAFEGUARDS, readBeforeWrite } } },
          new FakeModel([{ calls: [write] }, { text: 'done' }]),
        );
        const attempt = recordedAttempt();
        const graph = await createLeadAgent(options).forAttempt(attempt, new MemorySaver());
        await drain(graph, { messages: [new HumanMessage('go')] }, attempt);
        return sandboxes.text(FILE);
      };
      expect(DEFAULT_LEAD_AGENT_SETTINGS.safeguards.readBeforeWrite).toBe(true);
      expect(await run(true)).toBe('old');
      expect(await run(false)).toBe('new');

      const sandboxes = new MemorySandboxes().put(FILE, 'old');
      const world = delegation({
        sandboxes,
        lead: [{ calls: [task('write it')] }, { text: 'done' }],
        child: (messages) => {
          const last = messages.findLast(ToolMessage.isInstance);
          return last === undefined ? { calls: [write] } : { text: last.text };
        },
      });
      const outcome = await world.run();
      expect(results(outcome)[0]?.text).toMatch(/nothing was written/);
      expect(sandboxes.text(FILE)).toBe('old');
    },
  );

  test('sub-agents are audited, bounded and told the date as the lead agent is', verifies('MW-36'), async () => {
    const world = delegation({
      lead: [{ calls: [task('loop')] }, { text: 'done' }],
      child: (messages) => {
        expect(messages[0]?.text).toMatch(/<current_date>/);
        expect(messages.some((message) => message.text.includes('<memory>'))).toBe(false);
        return { text: 'trying', calls: [{ name: 'bash', args: { description: 'x', command: 'rm -rf /' } }] };
      },
      agent: { memory: { context: async () => 'likes tea' } },
    });
    const outcome = await world.run();
    expect(world.sandboxes.commands).toEqual([]);
    expect(results(outcome)[0]?.additional_kwargs).toMatchObject({ subagent_stop_reason: 'loop_capped' });
  });
});
