import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { AsyncLocalStorageProviderSingleton } from '@langchain/core/singletons';
import type { BaseCheckpointSaver } from '@langchain/langgraph';
import type { Surroundings } from '@reindeer/protocol';
import { agentGraph } from '../loop/attempt-graph.ts';
import { foldMessages, isAi, preface } from '../loop/messages.ts';
import type { ChildAgent } from './child-agents.ts';
import type { ChildAttempt, ChildScope } from './child-attempt.ts';
import type { SubagentOutcome } from './metadata.ts';
import { NamespacedSaver } from './namespaced-saver.ts';
import { isRecursionLimit, outcomeOf, turnsOf } from './outcome.ts';
import type { SubagentType } from './settings.ts';
import { messagesOfUpdates } from './steps.ts';

export interface ChildRun {
  readonly type: SubagentType;
  readonly agent: ChildAgent;
  readonly prompt: string;
  /** What the harness says before the task, such as the skills there are; '' = nothing. */
  readonly preface: string;
  readonly namespace: string;
  readonly attempt: ChildAttempt;
  readonly scope: ChildScope;
  readonly saver: BaseCheckpointSaver<string | number>;
  /** Of the run that delegates. */
  readonly configurable: Readonly<Record<string, unknown>>;
  readonly context: Readonly<Record<string, unknown>>;
  readonly surroundings: Surroundings;
  /** Its history of before, then what each step adds. */
  onMessages(news: readonly BaseMessage[]): void;
}

/** Steps of the graph per turn, at most: the model, a review, the tools. A bound behind the one on turns. */
const STEPS_PER_TURN = 3;
const STEPS_BEYOND = 20;

/**
 * Runs a sub-agent to its end and answers how it ended. One that an earlier attempt began goes on at its own last checkpoint; one that had
 * ended there is not run again. Rejects with the signal's reason after a stop, and with faults of the store.
 */
export async function runChild(run: ChildRun): Promise<SubagentOutcome> {
  const { agent, attempt, surroundings, scope, type } = run;
  const graph = agentGraph({
    loop: agent.loop,
    compiled: agent.compiled,
    saver: new NamespacedSaver(run.saver, run.namespace),
    scope,
    surroundings,
    metadata: { agent_name: type.name, subagent: true },
  });
  const configurable = withoutMachinery(run.configurable);
  // Without this LangGraph would take the graph for a part of the one whose tool runs here, and stream and stop it as such.
  return AsyncLocalStorageProviderSingleton.runWithConfig(
    {},
    async () => {
      const { values, tasks } = await graph.getState({ configurable });
      let messages = (values.messages ?? []) as BaseMessage[];
      run.onMessages(messages);
      // Tasks, not `next`: one whose writes are stored leaves `next` before the step that it belongs to is.
      if (messages.length > 0 && tasks.length === 0) return outcomeOf(messages, null, guardOf(messages, attempt, type));
      const input =
        messages.length === 0
          ? { messages: [...(run.preface === '' ? [] : [preface(run.preface)]), new HumanMessage(run.prompt)] }
          : null;
      let failure: unknown = null;
      try {
        const frames = await graph.stream(input, {
          configurable,
          // Delegating ends here (SA-10); everything else of the run counts for its sub-agents too (SA-09).
          context: { ...run.context, subagent_enabled: false, is_subagent: true },
          signal: attempt.signal,
          recursionLimit: type.maxTurns * STEPS_PER_TURN + STEPS_BEYOND,
          streamMode: ['updates'],
          subgraphs: false,
          durability: 'sync',
        });
        for await (const frame of frames) {
          const news = messagesOfUpdates(frame.at(-1));
          if (news.length === 0) continue;
          messages = foldMessages(messages, news);
          run.onMessages(news);
        }
        attempt.signal.throwIfAborted();
      } catch (error) {
        if (attempt.signal.aborted || !isRecursionLimit(error)) throw error;
        failure = error;
      }
      return outcomeOf(messages, failure, guardOf(messages, attempt, type));
    },
    true,
  );
}

/** The limit that ended it. After a restart only the history tells: out of turns with calls still open. */
function guardOf(messages: readonly BaseMessage[], attempt: ChildAttempt, type: SubagentType): string | null {
  if (attempt.guard !== null) return attempt.guard;
  const last = messages.findLast((message) => isAi(message));
  const open = isAi(last) && (last.tool_calls ?? []).length > 0;
  return open && turnsOf(messages) >= type.maxTurns ? 'turn_capped' : null;
}

const OWN = new Set(['checkpoint_id', 'checkpoint_ns', 'checkpoint_map']);

function withoutMachinery(configurable: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(configurable).filter(([key]) => !key.startsWith('__') && !OWN.has(key)));
}
