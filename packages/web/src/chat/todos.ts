import { isDictionary } from './wire.ts';

const STATUSES = ['pending', 'in_progress', 'completed'] as const;

/** One step of the agent's plan. */
export interface Todo {
  readonly content: string;
  readonly status: (typeof STATUSES)[number];
}

/** Reads the plan of a state; what is no step is left out. */
export function readTodos(value: readonly unknown[]): readonly Todo[] {
  return value.flatMap((entry) => {
    if (!isDictionary(entry) || typeof entry.content !== 'string' || entry.content === '') return [];
    const status = STATUSES.find((known) => known === entry.status) ?? 'pending';
    return [{ content: entry.content, status }];
  });
}
