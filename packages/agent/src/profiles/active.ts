import { ToolMessage } from '@langchain/core/messages';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { AGENT_TOOLS } from '../middleware/order.ts';
import { metaOfText, TOOL_META } from '../tools/tool-meta.ts';
import type { AgentProfile } from './profile.ts';

export const SETUP_AGENT = 'setup_agent';
export const UPDATE_AGENT = 'update_agent';

/** Which agent a run is (AG-3, AG-4). Its sub-agents have the same one, so that delegating opens nothing. */
export interface ActiveAgent {
  /** Name of the custom agent, or of the one to be made; null = the default agent. */
  readonly name: string | null;
  readonly profile: AgentProfile | null;
  /** Its `SOUL.md`; '' = none. */
  readonly soul: string;
  /** Talks with a person to make the agent. */
  readonly bootstrap: boolean;
  /** May it change its own profile? */
  readonly selfUpdate: boolean;
}

/** Groups of the tools that come with Reindeer; `tools` of the configuration may put them into others (TOOL-1). */
export const DEFAULT_TOOL_GROUPS: ReadonlyMap<string, string> = new Map([
  ['bash', 'bash'],
  ['ls', 'file:read'],
  ['read_file', 'file:read'],
  ['glob', 'file:read'],
  ['grep', 'file:read'],
  ['write_file', 'file:write'],
  ['str_replace', 'file:write'],
  ['web_search', 'web'],
  ['web_fetch', 'web'],
  ['image_search', 'web'],
]);

/** What an agent that makes another may use: to ask, to read its skill, and to do it. */
const BOOTSTRAP_TOOLS: readonly string[] = [SETUP_AGENT, 'ask_clarification', 'read_file'];
/** The only skill of such an agent. */
const BOOTSTRAP_SKILL = 'bootstrap';

/** May the agent call this tool? Groups say it of the tools that are in one; the harness's own and those of MCP servers are in none (AG-2). */
export function mayCall(
  agent: ActiveAgent | null,
  tool: string,
  groups: ReadonlyMap<string, string> = DEFAULT_TOOL_GROUPS,
): boolean {
  if (agent?.bootstrap === true) return BOOTSTRAP_TOOLS.includes(tool);
  if (tool === SETUP_AGENT) return false;
  if (tool === UPDATE_AGENT) return agent?.selfUpdate === true;
  const allowed = agent?.profile?.tool_groups ?? null;
  if (allowed === null) return true;
  const group = groups.get(tool);
  return group === undefined || allowed.includes(group);
}

/** The names of the skills that the agent has; null = all (SK-4b). */
export function skillNames(agent: ActiveAgent | null): readonly string[] | null {
  if (agent?.bootstrap === true) return [BOOTSTRAP_SKILL];
  return agent?.profile?.skills ?? null;
}

/** The skills of an agent, of all that the user has. */
export function skillsFor<S extends { readonly name: string }>(
  agent: ActiveAgent | null,
  skills: readonly S[],
): readonly S[] {
  const names = skillNames(agent);
  return names === null ? skills : skills.filter((skill) => names.includes(skill.name));
}

/**
 * Keeps an agent to its tools: those that it may not call are not offered, and a call of one is refused, whatever made the model try. Asked
 * of the run's own agent each time, which no request can forge.
 */
export function agentToolsMiddleware(groups: ReadonlyMap<string, string> = DEFAULT_TOOL_GROUPS): Middleware {
  // One list for one list and agent: what a model is bound to is remembered by it.
  const lists = new WeakMap<readonly unknown[], Map<string, readonly unknown[]>>();
  const nameOf = (tool: unknown): string => (tool as { name?: string }).name ?? '';
  return defineMiddleware({
    name: AGENT_TOOLS,
    wrapModelCall(request, handler) {
      const { agent } = scopeOf(request.runtime);
      if (request.tools.every((tool) => mayCall(agent, nameOf(tool), groups))) return handler(request);
      const known = lists.get(request.tools) ?? new Map<string, readonly unknown[]>();
      lists.set(request.tools, known);
      const key = keyOf(agent);
      const tools = known.get(key) ?? request.tools.filter((tool) => mayCall(agent, nameOf(tool), groups));
      if (known.size < MAX_LISTS) known.set(key, tools);
      return handler({ ...request, tools });
    },
    async wrapToolCall(request, handler) {
      const { toolCall } = request;
      if (mayCall(scopeOf(request.runtime).agent, toolCall.name, groups)) return handler(request);
      return new ToolMessage({
        content: `Error: ${toolCall.name} is not permitted for this agent. Use the tools that it has.`,
        tool_call_id: toolCall.id ?? '',
        name: toolCall.name,
        status: 'error',
        additional_kwargs: { [TOOL_META]: metaOfText('not permitted', 'error') },
      });
    },
  });
}

const MAX_LISTS = 64;
const keyOf = (agent: AttemptScope['agent']): string =>
  JSON.stringify([agent?.bootstrap === true, agent?.selfUpdate === true, agent?.profile?.tool_groups ?? null]);
