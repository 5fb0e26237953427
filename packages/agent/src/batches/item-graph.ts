import {
  type AttemptContext,
  type Graph,
  type GraphFactory,
  ReindeerError,
  type SandboxLeases,
} from '@reindeer/protocol';
import { agentGraph } from '../loop/attempt-graph.ts';
import { AttemptScope } from '../loop/scope.ts';
import type { ModelEntry } from '../models/entry.ts';
import type { ActiveAgent } from '../profiles/active.ts';
import type { SkillAccess } from '../skills/access.ts';
import type { Skill } from '../skills/library.ts';
import { type ChildAgent, childAgent } from '../subagents/child-agents.ts';
import type { SubagentType } from '../subagents/settings.ts';
import type { DelegationParts, PermitsOf, Subagents } from '../subagents/subagents.ts';
import { ITEM_AGENT, ITEM_OPTIONS, type ItemOptions } from './names.ts';

export interface ItemGraphOptions {
  readonly subagents: Subagents;
  /** What there is before any tool that may change. */
  readonly parts: DelegationParts;
  /** The tools of now, asked for at the start of each attempt. */
  readonly partsNow: (signal: AbortSignal) => Promise<DelegationParts>;
  readonly leases: SandboxLeases;
  readonly windowOf: (entry: ModelEntry) => number | null;
  /** Which agent a run with these options is with; throws when there is none of that name any more. */
  readonly agentOf: (userId: string, run: Readonly<Record<string, unknown>>) => Promise<ActiveAgent | null>;
  readonly permitsOf: PermitsOf;
  /** The skills that an agent of the user has, to keep its sub-agents to the tools that those in use name; null = they cannot be read. */
  readonly skillsOf: (userId: string, agent: ActiveAgent | null) => Promise<readonly Skill[] | null>;
  /** What an attempt may do with skills; null = there are none. */
  readonly accessFor: (attempt: AttemptContext, agent: ActiveAgent | null) => SkillAccess | null;
}

/** What an item is to do was written by a model. */
class ItemScope extends AttemptScope {
  override get delegated(): boolean {
    return true;
  }
}

/**
 * The graph of batch items: a sub-agent as the root of a run of its own, with its own thread, checkpoints and journal. It works in the sandbox and
 * on the files of the thread that the batch belongs to.
 */
export function createItemAgent(of: ItemGraphOptions): GraphFactory {
  const { subagents, parts, partsNow, leases, windowOf, agentOf: activeAgentOf, skillsOf, accessFor, permitsOf } = of;
  const types = subagents.types(parts.canExecute);
  /** They go with the tools that they were made of. */
  const made = new WeakMap<DelegationParts, Map<string, ChildAgent>>();
  const agentOf = (type: SubagentType, of: DelegationParts): ChildAgent => {
    const agents = made.get(of) ?? new Map<string, ChildAgent>();
    made.set(of, agents);
    const known = agents.get(type.name) ?? childAgent(type, of);
    agents.set(type.name, known);
    return known;
  };
  const [anyType] = types.values();
  if (anyType === undefined) throw new ReindeerError('internal', 'There is no sub-agent.');
  const { surroundings } = parts;
  return {
    assistantId: ITEM_AGENT,
    name: 'Batch item',
    description: 'Works on one item of a batch.',
    internal: true,
    async forAttempt(attempt, saver): Promise<Graph> {
      const options = optionsOf(attempt);
      const type = types.get(options.subagent_type);
      if (type === undefined)
        throw new ReindeerError('validation_failed', `There is no sub-agent "${options.subagent_type.slice(0, 80)}".`);
      const { context } = attempt.run.request;
      const inName = inNameOf(attempt, options);
      const { thinking_enabled: thinking } = context;
      const [chosen, now, agent] = await Promise.all([
        parts.models.choose({
          name: type.model ?? options.model_name,
          ...(typeof thinking === 'boolean' ? { thinking } : {}),
          ...permitsOf(inName.run),
        }),
        partsNow(attempt.signal),
        activeAgentOf(options.user_id, context),
      ]);
      const skills = await skillsOf(options.user_id, agent);
      const scope = new ItemScope(
        inName,
        leases,
        chosen.model,
        `item:${attempt.run.runId}:${attempt.attempt}`,
        windowOf(chosen.entry),
        skills,
        undefined,
        // The agent that asked for the batch is its items' too: what it may not call is not theirs either.
        agent,
        accessFor(inName, agent),
      );
      return agentGraph({
        ...agentOf(type, now),
        saver,
        surroundings,
        scope,
        metadata: { agent_name: type.name, subagent: true, model_name: chosen.entry.name },
      });
    },
    async forState(saver): Promise<Graph> {
      return agentGraph({ ...agentOf(anyType, parts), saver, surroundings, scope: null });
    },
  };
}

/** The attempt as hooks and tools see it: they act for the user, in the thread, that the batch belongs to. */
function inNameOf(attempt: AttemptContext, options: ItemOptions): AttemptContext {
  const run = { ...attempt.run, userId: options.user_id, threadId: options.thread_id };
  return new Proxy(attempt, {
    get(target, property) {
      if (property === 'run') return run;
      const value: unknown = Reflect.get(target, property, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

function optionsOf(attempt: AttemptContext): ItemOptions {
  const options = attempt.run.request.context[ITEM_OPTIONS];
  if (typeof options !== 'object' || options === null)
    throw new ReindeerError('internal', 'A run of a batch item came without its item.');
  return options as unknown as ItemOptions;
}
