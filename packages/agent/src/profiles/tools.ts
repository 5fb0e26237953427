import { ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { Command } from '@langchain/langgraph';
import { z } from 'zod';
import { defineTool, failed } from '../tools/define.ts';
import { SETUP_AGENT, UPDATE_AGENT } from './active.ts';
import { MAX_SOUL, type ProfileChange } from './profile.ts';
import type { AgentProfiles } from './store.ts';

export interface AgentToolParts {
  readonly profiles: AgentProfiles;
  /** Names of the configured models. */
  readonly models: () => readonly string[];
}

const names = z.union([z.array(z.string()), z.string()]).nullish();
/** Models write these where they mean that nothing was said. */
const NOTHING = new Set(['', 'null', 'none', 'undefined']);

/** `setup_agent` (TOOL-10): makes the agent that a conversation with a guide is about, or replaces its soul, description and skills. */
export function setupAgentTool({ profiles }: AgentToolParts): StructuredToolInterface {
  return defineTool({
    name: SETUP_AGENT,
    description:
      'Makes the agent that this conversation is about, once the user agrees. The soul is the whole document that tells the agent who it is and how it works.',
    schema: z.object({
      soul: z.string().max(MAX_SOUL).describe('SOUL.md, as Markdown.'),
      description: z.string().max(2_000).describe('One line for lists of agents.'),
      skills: names.describe('Names of the skills that it has; [] = none; left out = all.'),
    }),
    repeatable: false,
    async run({ soul, description, skills }, { scope, callId }) {
      const name = scope.agent?.name ?? null;
      if (scope.agent?.bootstrap !== true || name === null)
        return failed('this conversation is not about making an agent. It has to be started with agent_name.');
      if (soul.trim() === '') return failed('the soul is blank. Nothing was changed. Write the whole document.');
      const list = listOf('skills', skills);
      const agent = await profiles.upsert(scope.attempt.run.userId, name, {
        soul,
        description,
        ...(list === undefined ? {} : { skills: list }),
      });
      return new Command({
        update: {
          created_agent_name: agent.name,
          messages: [
            new ToolMessage({
              tool_call_id: callId,
              name: SETUP_AGENT,
              content: `The agent "${agent.name}" is there. The user can talk to it now.`,
              additional_kwargs: { created_agent_name: agent.name },
            }),
          ],
        },
      });
    },
  });
}

/** `update_agent` (TOOL-11): a custom agent changes its own profile. What is not named stays; it counts from the next turn on. */
export function updateAgentTool({ profiles, models }: AgentToolParts): StructuredToolInterface {
  return defineTool({
    name: UPDATE_AGENT,
    description:
      'Changes your own profile, only when the user asks for it. Leave out what shall stay as it is. The change counts from the next message on.',
    schema: z.object({
      soul: z.string().max(MAX_SOUL).nullish().describe('The whole new SOUL.md.'),
      description: z.string().max(2_000).nullish(),
      skills: names.describe('Names of all skills that you shall have; [] = none.'),
      tool_groups: names.describe('Names of all tool groups that you shall have; [] = none.'),
      model: z.string().max(200).nullish().describe('Name of a configured model.'),
    }),
    repeatable: false,
    async run(args, { scope }) {
      const { agent, attempt } = scope;
      const name = agent?.name ?? null;
      if (agent?.selfUpdate !== true || name === null) return failed('only a custom agent can change its profile.');
      const { userId } = attempt.run;
      const before = await profiles.get(userId, name);
      if (before === null) return failed(`there is no agent "${name}" any more.`);
      const given: ProfileChange = {
        soul: textOf(args.soul),
        description: textOf(args.description),
        model: textOf(args.model),
        skills: listOf('skills', args.skills),
        tool_groups: listOf('tool_groups', args.tool_groups),
      };
      if (typeof given.model === 'string' && !models().includes(given.model))
        return failed(`there is no model "${given.model.slice(0, 80)}". Configured: ${models().join(', ')}.`);
      const asked = Object.entries(given).filter(([, value]) => value !== undefined);
      if (asked.length === 0) return failed('nothing to change was named.');
      const changed = asked.filter(
        ([key, value]) => JSON.stringify(before[key as keyof typeof before]) !== JSON.stringify(value),
      );
      if (changed.length === 0) return 'Nothing was changed: the profile says that already.';
      await profiles.update(userId, name, Object.fromEntries(changed));
      return `Changed: ${changed.map(([key]) => key).join(', ')}. It counts from the next message on.`;
    },
  });
}

const textOf = (given: string | null | undefined): string | undefined =>
  given == null || NOTHING.has(given.trim().toLowerCase()) ? undefined : given;

function listOf(key: string, given: readonly string[] | string | null | undefined): string[] | undefined {
  if (given == null || (typeof given === 'string' && NOTHING.has(given.trim().toLowerCase()))) return undefined;
  if (typeof given === 'string') return failed(`${key} must be a list of names, such as ["${given.slice(0, 40)}"].`);
  return [...given];
}
