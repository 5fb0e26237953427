import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MemorySaver } from '@langchain/langgraph';
import { makeRun, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { AgentProfiles } from '../profiles/store.ts';
import type { Skill } from '../skills/library.ts';
import { delegation } from '../test-support/delegation.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { drain } from '../test-support/run-loop.ts';
import { sampleSkill } from '../test-support/sample-skill.ts';

let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'reindeer-items-'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const SKILL_FILE = '/mnt/skills/public/chart/SKILL.md';
const clerk = { description: 'Looks things up', systemPrompt: 'Look.', tools: null, disallowedTools: ['crm_delete'] };

/** An item of a batch whose sub-agent calls these tools one after the other. */
async function item(
  calls: readonly string[],
  context: Record<string, unknown> = {},
  skills: readonly Skill[] | 'unreadable' = [],
) {
  const ran: string[] = [];
  const mcpTool = (name: string) =>
    tool(
      () => {
        ran.push(name);
        return `${name} done`;
      },
      { name, description: name, schema: z.object({}) },
    );
  const profiles = new AgentProfiles({
    folder: (userId) => join(root, userId),
    legacyFolder: null,
    defaultSoul: join(root, 'SOUL.md'),
    userProfile: (userId) => join(root, `${userId}.md`),
    ...testSurroundings(),
  });
  if ((await profiles.get('ann', 'reader')) === null)
    await profiles.create('ann', 'reader', { tool_groups: ['file:read'] });
  const made = delegation({
    lead: [],
    child: (messages) => {
      const name = calls[messages.filter(ToolMessage.isInstance).length];
      return name === undefined
        ? { text: 'done' }
        : { calls: [{ name, args: { command: 'id', path: SKILL_FILE, description: 'x' } }] };
    },
    settings: { custom: { clerk } },
    sandboxes: new MemorySandboxes({ exec: () => exited('hello\n') }).put(SKILL_FILE, '---\nname: chart\n---\nDraw.'),
    agent: {
      skills: {
        prepare: async () => (skills === 'unreadable' ? Promise.reject(new Error('no disk')) : skills),
        list: async () => (skills === 'unreadable' ? [] : skills),
      },
      profiles,
      mcp: { catalog: async () => ({ version: 'v1', tools: ['crm_read', 'crm_delete'].map(mcpTool) }) },
    },
  });
  const { items } = made.agent;
  if (items === null) throw new Error('Nothing can be delegated.');
  const options = {
    batch_id: 'b',
    item_key: 'k',
    subagent_type: 'clerk',
    user_id: 'ann',
    thread_id: 'thread-of-batch',
    model_name: null,
  };
  const request = { ...makeRun().request, context: { ...context, batch_item: options } as never };
  const attempt = recordedAttempt({ run: makeRun({ userId: 'batch_b', threadId: 'b-0', request }) });
  const graph = await items.forAttempt(attempt, new MemorySaver());
  const { messages } = await drain(graph, { messages: [new HumanMessage('go')] }, attempt);
  const [offered = []] = made.model.bound.map((tools) => (tools as { name: string }[]).map(({ name }) => name));
  return { ran, offered, results: messages.filter(ToolMessage.isInstance).map((message) => message.text) };
}

test('an item has the tools of MCP servers that its type may use, and nothing that delegates', async () => {
  const { offered, ran, results } = await item(['crm_read', 'crm_delete']);
  expect(offered).toEqual(expect.arrayContaining(['crm_read', 'bash', 'read_file']));
  for (const name of ['crm_delete', 'task', 'batch_task', 'ask_clarification', 'present_files'])
    expect(offered).not.toContain(name);
  expect(ran).toEqual(['crm_read']);
  expect(results[0]).toBe('crm_read done');
  expect(results[1]).not.toContain('crm_delete done');
});

test('an item may call no tool that the agent may not call which asked for the batch', verifies('AG-2'), async () => {
  const { offered, ran, results } = await item(['bash', 'crm_read'], { agent_name: 'reader' });
  expect(offered).toContain('read_file');
  expect(offered).not.toContain('bash');
  expect(results[0]).toContain('bash is not permitted for this agent');
  expect(ran).toEqual(['crm_read']);
});

test('a skill that an item has read keeps it to the tools that it names', verifies('SK-9'), async () => {
  const calls = ['crm_read', 'read_file', 'crm_read', 'bash'];
  const { ran, results } = await item(calls, {}, [sampleSkill('chart', { allowedTools: ['bash'] })]);
  expect(ran).toEqual(['crm_read']);
  expect(results[2]).toContain('crm_read is not permitted while this skill is active');
  expect(results[3]).toContain('hello');
  // Whether a skill restricts cannot be told: what was read might.
  expect((await item(calls, {}, 'unreadable')).ran).toEqual(['crm_read']);
});

test('with an agent that is gone nothing begins', async () => {
  await expect(item([], { agent_name: 'gone' })).rejects.toThrow(/no agent "gone"/);
});
