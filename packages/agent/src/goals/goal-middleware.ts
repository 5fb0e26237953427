import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type AIMessage, HumanMessage } from '@langchain/core/messages';
import { ReindeerError, type Surroundings } from '@reindeer/protocol';
import { isAi, textOf } from '../loop/messages.ts';
import { defineMiddleware, type HookUpdate, type Middleware, type State } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { ERROR_FALLBACK } from '../middleware/llm-errors.ts';
import { reportAside } from '../middleware/llm-event.ts';
import { isStopped } from '../middleware/stopping.ts';
import { escapedText } from '../safety/tags.ts';
import { evaluateGoal } from './evaluate.ts';
import { type Goal, type GoalEvaluation, type GoalWrite, goalOf } from './goal.ts';

export const GOAL = 'goal';
const TIMEOUT_MS = 60_000;

export interface GoalParts {
  readonly surroundings: Surroundings;
  /** The model that judges, without thinking; null = that of the run. */
  evaluator(scope: AttemptScope): Promise<BaseChatModel | null>;
}

/**
 * Keeps working until the thread's goal is met (GOAL-1). When a turn has ended with a visible answer, an evaluator judges; only
 * `goal_not_met_yet` goes on, by a hidden message, and no more often than the caps allow. Met: the goal is taken away. An evaluator that fails
 * ends it quietly, and the goal stays.
 *
 * A continuation is part of the same run, so nothing can come in between: the run holds the thread's only slot and its token. The answer that
 * was judged, the count and the message that goes on are written in one checkpoint before the model is called again (RG-05): after a crash
 * they are all there, or none is and the turn ends again. The goal that was judged is named in the write: one that was cleared or replaced
 * takes nothing from it (RG-02).
 */
export function goalMiddleware(parts: GoalParts): Middleware {
  const { clock, logger } = parts.surroundings;
  return defineMiddleware({
    name: GOAL,
    afterAgent: {
      canJumpTo: ['model'],
      async hook(state, runtime): Promise<HookUpdate> {
        const goal = goalOf(state);
        if (goal === null || receiptOf(state) === null) return undefined;
        const scope = scopeOf(runtime);
        const evaluation = await judged(goal, state, scope, runtime.signal);
        // After an abort nothing goes on, whatever the verdict.
        runtime.signal?.throwIfAborted();
        if (evaluation === null) return undefined;
        scope.attempt.emit({ type: 'goal:evaluated', satisfied: evaluation.satisfied, blocker: evaluation.blocker });
        if (evaluation.satisfied) return { goal: { cleared: true, of: goal.created_at } satisfies GoalWrite };
        return step(goal, evaluation);
      },
    },
  });

  async function judged(
    goal: Goal,
    state: State,
    scope: AttemptScope,
    signal: AbortSignal | undefined,
  ): Promise<GoalEvaluation | null> {
    const { attempt } = scope;
    try {
      const model = (await parts.evaluator(scope)) ?? scope.model;
      if (model === null) return null;
      return await attempt.effects.track('goal', () =>
        evaluateGoal({
          model,
          objective: goal.objective,
          messages: state.messages,
          now: clock.now(),
          signal: AbortSignal.any([AbortSignal.timeout(TIMEOUT_MS), ...(signal === undefined ? [] : [signal])]),
          onUsage: (usage) => attempt.countUsage({ ...usage, caller: 'middleware' }),
          onFailure: reportAside(attempt, model, 'goal', clock),
        }),
      );
    } catch (error) {
      if (signal?.aborted === true) throw error;
      logger.warn('The goal could not be judged; the run ends here', {
        reason: ReindeerError.is(error) ? error.code : error instanceof Error ? error.name : 'unknown',
      });
      return null;
    }
  }
}

/** The answer that a verdict may stand on: visible, finished, and no failure or limit. */
function receiptOf(state: State): AIMessage | null {
  const last = state.messages.at(-1);
  if (!isAi(last) || (last.tool_calls ?? []).length + (last.invalid_tool_calls ?? []).length > 0) return null;
  if (textOf(last).trim() === '' || last.additional_kwargs[ERROR_FALLBACK] === true || isStopped(last)) return null;
  return last;
}

/** What follows from a verdict that is not yet met: the note of it and, within the caps, one more turn. */
export function step(goal: Goal, evaluation: GoalEvaluation): HookUpdate {
  const unchanged = goal.last_evaluation?.evidence_signature === evaluation.evidence_signature;
  const noProgress = unchanged ? goal.no_progress_count + 1 : 0;
  const goesOn =
    evaluation.blocker === 'goal_not_met_yet' &&
    goal.continuation_count < goal.max_continuations &&
    noProgress < goal.max_no_progress_continuations;
  const progress: Partial<Goal> = {
    updated_at: evaluation.evaluated_at,
    last_evaluation: evaluation,
    no_progress_count: noProgress,
    ...(goesOn ? { continuation_count: goal.continuation_count + 1 } : {}),
  };
  const write: GoalWrite = { progress, of: goal.created_at };
  if (!goesOn) return { goal: write };
  return { goal: write, messages: [continuation(goal, evaluation)], jumpTo: 'model' };
}

function continuation(goal: Goal, evaluation: GoalEvaluation): HumanMessage {
  const number = goal.continuation_count + 1;
  return new HumanMessage({
    name: 'goal_continuation',
    content: `<goal_continuation>\nThe goal is not met yet: ${escapedText(goal.objective)}\nWhat is missing: ${escapedText(evaluation.reason)}\nGo on now (${number} of ${goal.max_continuations}). If you cannot without the user, say what you need.\n</goal_continuation>`,
    additional_kwargs: { hide_from_ui: true },
  });
}
