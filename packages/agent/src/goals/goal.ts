/** Why a goal is not met, as the evaluator sees it. Only `goal_not_met_yet` lets the agent go on by itself. */
export const BLOCKERS = [
  'none',
  'missing_evidence',
  'needs_user_input',
  'run_failed',
  'external_wait',
  'goal_not_met_yet',
] as const;
export type Blocker = (typeof BLOCKERS)[number];

export const MAX_OBJECTIVE = 4_000;
export const MAX_CONTINUATIONS = 8;
const MAX_NO_PROGRESS = 2;

export interface GoalEvaluation {
  readonly satisfied: boolean;
  readonly blocker: Blocker;
  readonly reason: string;
  readonly evidence_summary: string;
  readonly evaluated_at: string;
  /** Hash of the answer that was judged: the same one again is no progress. */
  readonly evidence_signature: string;
}

/** The goal of a thread, in the state (GOAL-1). `created_at` is its identity: a new goal is another one, whatever it says. */
export interface Goal {
  readonly objective: string;
  readonly status: 'active';
  readonly created_at: string;
  readonly updated_at: string;
  readonly continuation_count: number;
  readonly max_continuations: number;
  readonly no_progress_count: number;
  readonly max_no_progress_continuations: number;
  readonly last_evaluation: GoalEvaluation | null;
}

/**
 * What is written to the goal channel: a goal (it takes the place of the one before), what became of the one that is there, or its end.
 * `progress` and `cleared` count only for the goal that they name.
 */
export type GoalWrite =
  | Goal
  | { readonly progress: Partial<Goal>; readonly of: string }
  | { readonly cleared: true; readonly of: string | null };

export function newGoal(objective: string, maxContinuations: number, now: number): Goal {
  const at = new Date(now).toISOString();
  return {
    objective,
    status: 'active',
    created_at: at,
    updated_at: at,
    continuation_count: 0,
    max_continuations: maxContinuations,
    no_progress_count: 0,
    max_no_progress_continuations: MAX_NO_PROGRESS,
    last_evaluation: null,
  };
}

/** The goal in a state, with defaults for what an older one does not say (RG-06); null = none. */
export function goalOf(state: Readonly<Record<string, unknown>>): Goal | null {
  const { goal } = state;
  if (typeof goal !== 'object' || goal === null || Array.isArray(goal)) return null;
  const given = goal as Partial<Record<keyof Goal, unknown>>;
  if (typeof given.objective !== 'string' || given.objective.trim() === '') return null;
  if (given.status !== undefined && given.status !== 'active') return null;
  const count = (value: unknown, otherwise: number): number =>
    typeof value === 'number' && Number.isFinite(value) && value >= 0 ? Math.floor(value) : otherwise;
  const text = (value: unknown): string => (typeof value === 'string' ? value : '');
  return {
    objective: given.objective,
    status: 'active',
    created_at: text(given.created_at),
    updated_at: text(given.updated_at),
    continuation_count: count(given.continuation_count, 0),
    max_continuations: Math.min(MAX_CONTINUATIONS, count(given.max_continuations, MAX_CONTINUATIONS)),
    no_progress_count: count(given.no_progress_count, 0),
    max_no_progress_continuations: count(given.max_no_progress_continuations, MAX_NO_PROGRESS),
    last_evaluation: (given.last_evaluation as GoalEvaluation | null | undefined) ?? null,
  };
}

/**
 * The channel's reducer. A null write preserves; progress of a goal that was cleared or replaced meanwhile is dropped (RG-02); the count of
 * continuations never goes back (RG-04).
 */
export function mergeGoal(left: unknown, right: unknown): unknown {
  if (typeof right !== 'object' || right === null || Array.isArray(right)) return left;
  const write = right as Record<string, unknown>;
  const current = goalOf({ goal: left });
  if (write.cleared === true) return write.of === null || current?.created_at === write.of ? null : left;
  if ('progress' in write) {
    if (current === null || current.created_at !== write.of) return left;
    const progress = (write.progress ?? {}) as Partial<Goal>;
    const counted = Math.max(current.continuation_count, progress.continuation_count ?? 0);
    return { ...current, ...progress, created_at: current.created_at, continuation_count: counted };
  }
  return goalOf({ goal: write }) === null ? left : write;
}
