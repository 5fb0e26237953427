import { ToolMessage } from '@langchain/core/messages';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { SKILL_POLICY } from '../middleware/order.ts';
import { metaOfText, TOOL_META } from '../tools/tool-meta.ts';
import { skillCommand } from './activation.ts';
import type { Skill } from './library.ts';

/** Tools that no skill takes away: without them none could be read or left (SK-9). */
const ALWAYS: readonly string[] = [
  'read_file',
  'tool_search',
  'describe_skill',
  'review_skill_package',
  'ask_clarification',
];

/**
 * Keeps the agent to the tools that its active skills name (SK-9). Worked out anew from the stored state and the server's own list of skills for each
 * model call and each tool call, so that there is nothing that a request could forge.
 */
export function skillPolicyMiddleware(): Middleware {
  const lists = new WeakMap<readonly unknown[], Map<string, readonly unknown[]>>();
  return defineMiddleware({
    name: SKILL_POLICY,
    wrapModelCall(request, handler) {
      const allowed = allowedTools(request.state, scopeOf(request.runtime));
      if (allowed === null) return handler(request);
      // The same list for the same tools: what a model is bound to is remembered by it.
      const known = lists.get(request.tools) ?? new Map<string, readonly unknown[]>();
      lists.set(request.tools, known);
      const key = [...allowed].sort().join(' ');
      const tools =
        known.get(key) ?? request.tools.filter((tool) => allowed.has((tool as { name?: string }).name ?? ''));
      if (known.size < 32) known.set(key, tools);
      return handler({ ...request, tools });
    },
    async wrapToolCall(request, handler) {
      const { toolCall } = request;
      const allowed = allowedTools(request.state, scopeOf(request.runtime));
      if (allowed === null || allowed.has(toolCall.name)) return handler(request);
      return new ToolMessage({
        content: `Error: ${toolCall.name} is not permitted while this skill is active. Tools that are: ${[...allowed].join(', ')}.`,
        tool_call_id: toolCall.id ?? '',
        name: toolCall.name,
        status: 'error',
        additional_kwargs: { [TOOL_META]: metaOfText('not permitted', 'error') },
      });
    },
  });
}

/** null = no restriction. A skill that was called decides alone; otherwise what was read counts, and one that says nothing restricts nothing. */
export function allowedTools(
  state: State,
  scope: Pick<AttemptScope, 'skills' | 'delegated'>,
): ReadonlySet<string> | null {
  const { skills } = scope;
  const read = readSkillPaths(state);
  // What a model wrote to a sub-agent calls nothing in a person's name.
  const command = scope.delegated ? null : skillCommand(state);
  if (skills === null) {
    // Whether a skill restricts cannot be told now; one that is active might.
    return read.length > 0 || command !== null ? new Set(ALWAYS) : null;
  }
  const called = command === null ? undefined : skills.find((skill) => skill.name === command.name && skill.enabled);
  const active: readonly Skill[] =
    called === undefined
      ? skills.filter((skill) => skill.enabled && read.includes(`${skill.location}/SKILL.md`))
      : [called];
  const lists = active.map((skill) => skill.allowedTools).filter((list) => list !== null);
  return lists.length === 0 ? null : new Set([...lists.flat(), ...ALWAYS]);
}

/** Paths of the `SKILL.md` files that the agent has read. */
export function readSkillPaths(state: State): readonly string[] {
  const entries = Array.isArray(state.skill_context) ? (state.skill_context as { path?: unknown }[]) : [];
  return entries.map((entry) => entry.path).filter((path): path is string => typeof path === 'string');
}
