import { HumanMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { NO_LOG } from '@reindeer/protocol';
import { makeRun, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createLeadAgent, type LeadAgentOptions } from '../lead/lead-agent.ts';
import { DEFAULT_SAFEGUARDS } from '../lead/safeguards.ts';
import { createModelRegistry } from '../models/registry.ts';
import { delegation, results, task } from '../test-support/delegation.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { Authorization, NO_AUTHORIZATION, rbacProvider } from './authorization.ts';

const ran: string[] = [];
const named = (name: string) =>
  tool(
    () => {
      ran.push(name);
      return `${name} done`;
    },
    { name, description: name, schema: z.object({}) },
  );
const provider = rbacProvider({
  user: { tools: { allow: '*', deny: ['crm_delete', 'bash'] }, models: { allow: ['small'], deny: [] } },
  admin: {},
});
const SETTINGS = { safeguards: { ...DEFAULT_SAFEGUARDS, authorization: { ...NO_AUTHORIZATION, provider } } };
const call = (name: string): Turn => ({ calls: [{ name, args: {} }] });

async function run(context: Record<string, unknown>, turns: readonly Turn[], more: Partial<LeadAgentOptions> = {}) {
  ran.length = 0;
  const surroundings = testSurroundings();
  const model = new FakeModel([...turns, { text: 'ok' }]);
  const made: string[] = [];
  const agent = createLeadAgent({
    models: createModelRegistry({
      entries: [
        { use: 'fake', name: 'large', model: 'large' },
        { use: 'fake', name: 'small', model: 'small' },
      ],
      environment: {},
      logger: surroundings.logger,
      factories: {
        fake: ({ model: name }) => {
          made.push(name);
          return model;
        },
      },
    }),
    sandboxes: new MemorySandboxes(),
    surroundings,
    mcp: { catalog: async () => ({ version: 'v1', tools: [named('crm_read'), named('crm_delete')] }) },
    settings: SETTINGS,
    ...more,
  });
  const request = { ...makeRun().request, context: context as never };
  const attempt = recordedAttempt({ run: makeRun({ userId: 'ann', request }) });
  const graph = await agent.forAttempt(attempt, new MemorySaver());
  const { messages } = await drain(graph, { messages: [new HumanMessage('hi')] }, attempt);
  const offered = model.bound.map((tools) => (tools as { name: string }[]).map(({ name }) => name));
  return {
    offered: offered[0] ?? [],
    made: [...new Set(made)],
    results: messages.filter((message) => message.type === 'tool').map((message) => message.text),
    events: attempt.events,
  };
}

describe('roles', () => {
  test('tools that a role may not use are neither offered nor run', verifies('SAFE-2'), async () => {
    const { offered, results: answers, events } = await run({}, [call('crm_delete'), call('crm_read')]);
    expect(offered).toContain('crm_read');
    for (const name of ['crm_delete', 'bash']) expect(offered).not.toContain(name);
    expect(answers[0]).toMatch(/^Error: crm_delete is not permitted for this user/);
    expect(ran).toEqual(['crm_read']);
    expect(JSON.stringify(events)).toContain('"type":"authorization:denied","tool":"crm_delete","role":"user"');
    const admin = await run({ user_role: 'admin' }, [call('crm_delete')]);
    expect([admin.offered.includes('crm_delete'), ran]).toEqual([true, ['crm_delete']]);
  });

  test('a role that was named for a schedule gives no more than the configuration gives now, and no less than it took', async () => {
    const planned = { user_role: 'admin', scheduled: true };
    expect((await run(planned, [call('crm_delete')])).results[0]).toMatch(/not permitted for this user/);
    expect(ran).toEqual([]);
    expect((await run({ ...planned, model_name: 'large' }, [])).made).toEqual(['small']);
    const asked: string[] = [];
    const both = (users: Record<string, string>) =>
      new Authorization(
        {
          ...NO_AUTHORIZATION,
          users,
          provider: {
            name: 'own',
            permits: (principal) => {
              expect(principal).not.toHaveProperty('within');
              asked.push(principal.role);
              return principal.role !== 'guest';
            },
          },
        },
        NO_LOG,
      );
    const may = async (authorization: Authorization, context: Record<string, unknown>) => {
      asked.length = 0;
      const request = { ...makeRun().request, context: context as never };
      return await authorization.permits(authorization.principalOf(makeRun({ userId: 'ann', request })), 'tools', 'ls');
    };
    // Less than everybody has, then as now.
    expect([await may(both({}), { user_role: 'guest', scheduled: true }), asked]).toEqual([false, ['user', 'guest']]);
    expect([await may(both({ ann: 'admin' }), planned), asked]).toEqual([true, ['admin']]);
    expect([await may(both({ ann: 'guest' }), planned), asked]).toEqual([false, ['guest']]);
    expect([await may(both({}), { user_role: 'admin' }), asked]).toEqual([true, ['admin']]);
  });

  test('a role that is not there may use nothing', verifies('SAFE-2'), async () => {
    const stranger = await run({ user_role: 'root' }, [call('crm_read')]).catch((error: Error) => error.message);
    expect(stranger).toMatch(/None of the configured models/);
    expect(ran).toEqual([]);
    const authorization = new Authorization({ ...NO_AUTHORIZATION, provider, failClosed: false }, NO_LOG);
    expect(await authorization.permits(authorization.principal('ann', 'constructor', null), 'tools', 'ls')).toBe(false);
  });

  test('what may not be used cannot be found by a search either', verifies('SAFE-2', 'SA-11'), async () => {
    const searching: Turn = { calls: [{ name: 'tool_search', args: { query: 'select:crm_delete' } }] };
    const { results: answers } = await run({}, [searching, call('crm_delete')], { toolSearch: { enabled: true } });
    expect(answers[1]).toMatch(/^Error: crm_delete is not permitted/);
    expect(ran).toEqual([]);
  });

  test('a sub-agent has the role of its user', verifies('SAFE-2'), async () => {
    ran.length = 0;
    const made = delegation({
      lead: [{ calls: [task('a', 'clerk')] }, { text: 'Done.' }],
      child: (messages) =>
        messages.some((message) => message.type === 'tool')
          ? { text: messages.findLast((message) => message.type === 'tool')?.text ?? '' }
          : { calls: [{ name: 'crm_delete', args: {} }] },
      settings: {
        custom: { clerk: { description: 'c', systemPrompt: 'c', tools: null, disallowedTools: [] } },
      },
      agent: {
        mcp: { catalog: async () => ({ version: 'v1', tools: [named('crm_delete')] }) },
        settings: {
          safeguards: {
            ...DEFAULT_SAFEGUARDS,
            authorization: {
              ...NO_AUTHORIZATION,
              provider: rbacProvider({ user: { tools: { allow: '*', deny: ['crm_delete'] } } }),
            },
          },
        },
      },
    });
    expect(results(await made.run())[0]?.text).toContain('not permitted for this user');
    expect(ran).toEqual([]);
  });

  test('the first model that a role may use takes the place of one that it may not', verifies('SAFE-2'), async () => {
    expect((await run({ model_name: 'large' }, [])).made).toEqual(['small']);
    expect((await run({ model_name: 'large', user_role: 'admin' }, [])).made).toEqual(['large']);
  });
});
