import type { StructuredToolInterface } from '@langchain/core/tools';
import { ReindeerError, type Run, type Surroundings } from '@reindeer/protocol';
import { z } from 'zod';
import type { ModelChoice, ModelRegistry } from '../models/registry.ts';
import { defineTool, failed } from '../tools/define.ts';
import { Capacity } from './capacity.ts';
import { type ChildAgent, type ChildAgentParts, childAgent } from './child-agents.ts';
import { Executions } from './executions.ts';
import { type SubagentSettings, type SubagentType, TASK_TOOL } from './settings.ts';
import { TaskCall } from './task-call.ts';
import { subagentTypes } from './types.ts';

const LONGEST_DESCRIPTION = 500;
const LONGEST_PROMPT = 100_000;

export interface SubagentOptions {
  readonly settings: SubagentSettings;
  readonly surroundings: Surroundings;
  /**
   * Text of the skills that a type may load; it goes before the task. `names` null = those of the lead agent. A failure fails the sub-agent
   * before anything of it starts (SA-12).
   */
  readonly loadSkills?: (input: {
    readonly names: readonly string[] | null;
    readonly userId: string;
    readonly threadId: string;
    readonly signal: AbortSignal;
  }) => Promise<string>;
}

/** What the `task` tool needs of the agent that offers it. */
export interface DelegationParts extends ChildAgentParts {
  readonly models: ModelRegistry;
  readonly permitsOf: PermitsOf;
}

/** Which models the user of a run may use, as a choice of a model takes it. */
export type PermitsOf = (run: Run) => Pick<ModelChoice, 'permits'>;

/**
 * The sub-agents of one process: their queue, those at work, and the `task` tool that starts them. A sub-agent is a graph of its own inside
 * its tool call: checkpointed under a namespace of the thread by the run's saver, its tools journalled under the run's fence. So a
 * call that a crash cut short goes on at the sub-agent's own last checkpoint.
 */
export class Subagents {
  readonly settings: SubagentSettings;
  readonly capacity: Capacity;
  readonly executions: Executions;
  readonly #options: SubagentOptions;

  /** @param process the sub-agents of the same process under earlier settings: both have one queue, and one list of those at work */
  constructor(options: SubagentOptions, process?: Subagents) {
    this.settings = options.settings;
    this.capacity = process?.capacity ?? new Capacity(options.settings.capacity, options.surroundings.clock);
    this.executions = process?.executions ?? new Executions(options.surroundings.clock);
    this.#options = options;
  }

  /**
   * The same sub-agents under other settings, for agents that are made from now on. Those at work go on under theirs; the limits of the queue are
   * `settings.capacity` once they are told to it (`capacity.configureWhenIdle`).
   */
  under(settings: SubagentSettings): Subagents {
    return new Subagents({ ...this.#options, settings }, this);
  }

  /** The types that this machine can offer. Throws `configuration`. */
  types(canExecute: boolean): ReadonlyMap<string, SubagentType> {
    return subagentTypes(this.settings, canExecute);
  }

  /** Stops what runs on after the runs have ended, and waits for it, at most `timeoutMs`. Answers what still runs (SA-08). Idempotent. */
  drain(timeoutMs: number): Promise<readonly string[]> {
    return this.executions.drain(timeoutMs, new ReindeerError('aborted', 'Reindeer is stopping.'));
  }

  /**
   * Text of the skills that a type may load, of those that the delegating agent has (null = all); '' = none. Rejects when they cannot be loaded:
   * then nothing of a sub-agent may start (SA-12).
   */
  async skillsFor(
    type: SubagentType,
    where: { readonly userId: string; readonly threadId: string; readonly signal: AbortSignal },
    ofAgent: readonly string[] | null = null,
  ): Promise<string> {
    const names =
      ofAgent === null || type.skills === null
        ? (type.skills ?? ofAgent)
        : type.skills.filter((name) => ofAgent.includes(name));
    return (await this.#options.loadSkills?.({ names, ...where })) ?? '';
  }

  /** The `task` tool over the tools and safe-guards of one agent (TOOL-7). */
  taskTool(parts: DelegationParts): StructuredToolInterface {
    const types = this.types(parts.canExecute);
    const agents = new Map<string, ChildAgent>();
    const agentOf = (type: SubagentType): ChildAgent => {
      const known = agents.get(type.name) ?? childAgent(type, parts);
      agents.set(type.name, known);
      return known;
    };
    return defineTool({
      name: TASK_TOOL,
      description: `Hands one task to a sub-agent, which works on it alone, with its own context, and answers with its result. It sees nothing of this conversation: put everything that it needs into the prompt. Files are shared. Several calls in one message run side by side. Types: ${[...types.keys()].join(', ')}.`,
      schema: z.object({
        description: z.string().describe('In 3 to 5 words: what the task is.'),
        prompt: z
          .string()
          .min(1)
          .max(LONGEST_PROMPT)
          .describe('The whole task: goal, facts, paths, and what to answer.'),
        subagent_type: z.string().describe(`One of: ${[...types.keys()].join(', ')}.`),
      }),
      repeatable: false,
      // It goes on at the sub-agent's own checkpoint (D7).
      resumable: true,
      run: async ({ description, prompt, subagent_type: name }, context) => {
        const type = types.get(name);
        if (type === undefined)
          return failed(
            `there is no sub-agent "${name.slice(0, 80)}". Choose one of: ${[...types.keys()].join(', ')}.`,
          );
        const task = new TaskCall(this, this.#options, parts, type, agentOf, context, {
          description: description.slice(0, LONGEST_DESCRIPTION),
          prompt,
        });
        return task.run();
      },
    });
  }
}
