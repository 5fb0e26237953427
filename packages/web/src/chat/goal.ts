import { isDictionary, textOr } from './wire.ts';

/** What the agent works towards in this chat until it is reached. */
export interface Goal {
  readonly objective: string;
  /** Turns that it has taken by itself, and how many it may. */
  readonly turns: number;
  readonly mostTurns: number;
  /** Why it was not reached when it was last looked at; null = it was not looked at yet. */
  readonly missing: string | null;
}

export function readGoal(value: unknown): Goal | null {
  const objective = isDictionary(value) ? textOr(value.objective, '') : '';
  if (!isDictionary(value) || objective.trim() === '') return null;
  const number = (given: unknown) => (typeof given === 'number' ? given : 0);
  const verdict = isDictionary(value.last_evaluation) ? value.last_evaluation : {};
  return {
    objective,
    turns: number(value.continuation_count),
    mostTurns: number(value.max_continuations),
    missing: textOr(verdict.reason, null),
  };
}
