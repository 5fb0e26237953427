import { tool } from '@langchain/core/tools';
import { verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { delegation, results, task } from '../test-support/delegation.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { sampleSkill } from '../test-support/sample-skill.ts';

const ran: string[] = [];
const named = (name: string) =>
  tool(
    () => {
      ran.push(name);
      return `${name} done`;
    },
    { name, description: name, schema: z.object({}) },
  );

/** On the shelf, and nothing more: nobody called it. */
const SHELVED = sampleSkill('chart', { allowedTools: ['write_file', 'crm_delete'] });

const clerk = (tools: readonly string[] | null, disallowedTools: readonly string[] = []) => ({
  description: 'Looks things up',
  systemPrompt: 'Look.',
  tools,
  disallowedTools,
});

function world(type: ReturnType<typeof clerk>, calls: readonly string[]) {
  ran.length = 0;
  return delegation({
    lead: [{ calls: [task('a', 'clerk')] }, { text: 'Done.' }],
    child: (messages) => {
      const done = messages.filter((message) => message.type === 'tool').length;
      const name = calls[done];
      return name === undefined
        ? {
            text:
              messages.flatMap((message) => (message.type === 'tool' ? [message.text] : [])).join(' | ') || 'nothing',
          }
        : { calls: [{ name, args: name === 'tool_search' ? { query: 'select:crm_delete,crm_read' } : {} }] };
    },
    settings: { custom: { clerk: type } },
    options: { loadSkills: async () => '<skill_system>\n- chart: draws charts\n</skill_system>' },
    agent: {
      mcp: { catalog: async () => ({ version: 'v1', tools: [named('crm_read'), named('crm_delete')] }) },
      toolSearch: { enabled: true },
      skills: { prepare: async () => [SHELVED], list: async () => [SHELVED] },
    },
  });
}

/** The tools that the sub-agent's model was bound to; `task` is the lead agent's. */
function offeredTo(made: ReturnType<typeof world>): readonly string[] {
  const lists = made.model.bound.map((tools) => (tools as { name: string }[]).map(({ name }) => name));
  return lists.find((names) => !names.includes('task')) ?? [];
}

test('what a type may not use cannot be found by a search either', verifies('SA-11'), async () => {
  const made = world(clerk(null, ['crm_delete', 'bash']), ['tool_search', 'crm_delete', 'crm_read']);
  const [result] = results(await made.run());
  const offered = offeredTo(made);
  // It searches for what it may use, as the lead agent does.
  expect(offered).toContain('tool_search');
  for (const name of ['crm_delete', 'bash', 'batch_task']) expect(offered).not.toContain(name);
  expect(ran).toEqual(['crm_read']);
  expect(result?.text).toContain('crm_read done');
  expect(result?.text).not.toContain('crm_delete done');
});

test('a skill that a sub-agent has read keeps it to the tools that it names', verifies('SK-9', 'MW-36'), async () => {
  const made = delegation({
    lead: [{ calls: [task('/chart with the numbers', 'clerk')] }, { text: 'Done.' }],
    child: (messages) => {
      const done = messages.filter((message) => message.type === 'tool').length;
      const path = { description: 'read', path: '/mnt/skills/public/chart/SKILL.md' };
      const turns = [
        { calls: [{ name: 'crm_read', args: {} }] },
        { calls: [{ name: 'read_file', args: path }] },
        { calls: [{ name: 'crm_read', args: {} }] },
        { calls: [{ name: 'crm_delete', args: {} }] },
      ];
      return turns[done] ?? { text: messages.map((message) => message.text).join(' | ') };
    },
    sandboxes: new MemorySandboxes().put('/mnt/skills/public/chart/SKILL.md', SHELVED.text),
    settings: { custom: { clerk: clerk(null) } },
    agent: {
      mcp: { catalog: async () => ({ version: 'v1', tools: [named('crm_read'), named('crm_delete')] }) },
      skills: { prepare: async () => [SHELVED], list: async () => [SHELVED] },
    },
  });
  ran.length = 0;
  const [result] = results(await made.run());
  // Before it was read, whatever a model wrote with a slash, nothing is restricted.
  expect(ran).toEqual(['crm_read', 'crm_delete']);
  expect(result?.text).toContain('crm_read is not permitted while this skill is active');
});

test('a skill that nobody called neither takes tools away nor brings any', verifies('SA-11'), async () => {
  const made = world(clerk(['read_file', 'crm_read']), ['tool_search', 'crm_delete', 'crm_read']);
  await made.run();
  // The skill lists neither of the two, and both that it lists are not the type's.
  expect([...offeredTo(made)].sort()).toEqual(['read_file', 'tool_search']);
  expect(ran).toEqual(['crm_read']);
});
