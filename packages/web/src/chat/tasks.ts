import { type Dictionary, isDictionary, listOf, textOr } from './wire.ts';

export type TaskStatus = 'running' | 'completed' | 'failed' | 'cancelled' | 'timed_out';

/** The work of a sub-agent, as its events and the result of its call tell it. */
export interface Task {
  readonly status: TaskStatus;
  readonly type: string;
  readonly description: string;
  readonly steps: readonly TaskStep[];
  /** How many steps there were: the oldest are forgotten. */
  readonly stepCount: number;
  readonly model: string | null;
  readonly tokens: number | null;
  /** Why it ended early; null = by itself. */
  readonly stopReason: string | null;
  readonly result: string;
  readonly error: string | null;
}

export type TaskStep =
  | { readonly kind: 'said'; readonly id: string; readonly text: string; readonly calls: readonly StepCall[] }
  | {
      readonly kind: 'result';
      readonly id: string;
      readonly name: string;
      readonly text: string;
      readonly failed: boolean;
    };

export interface StepCall {
  readonly name: string;
  /** The arguments, in one line. */
  readonly hint: string;
}

const MOST_STEPS = 200;
const ENDS: Readonly<Record<string, TaskStatus>> = {
  task_completed: 'completed',
  task_failed: 'failed',
  task_cancelled: 'cancelled',
  task_timed_out: 'timed_out',
};
const NEW: Task = {
  status: 'running',
  type: '',
  description: '',
  steps: [],
  stepCount: 0,
  model: null,
  tokens: null,
  stopReason: null,
  result: '',
  error: null,
};

/** Takes one event in. null = it is none of a sub-agent. */
export function taskEvent(before: Task | undefined, data: Dictionary): Task | null {
  const type = textOr(data.type, '');
  const task = {
    ...(before ?? NEW),
    type: textOr(data.subagent_type, before?.type ?? ''),
    description: textOr(data.description, before?.description ?? ''),
    model: textOr(data.model_name, before?.model ?? null),
    tokens: tokensOf(data.usage) ?? before?.tokens ?? null,
  };
  // A call that runs again after a crash goes on with what it has.
  if (type === 'task_started') return { ...task, status: 'running' };
  if (type === 'task_running') {
    const step = readStep(data.message);
    if (step === null || task.steps.some((other) => other.id === step.id)) return task;
    return { ...task, steps: [...task.steps, step].slice(-MOST_STEPS), stepCount: task.stepCount + 1 };
  }
  const end = Object.hasOwn(ENDS, type) ? ENDS[type] : undefined;
  if (end === undefined) return null;
  return {
    ...task,
    status: end,
    result: textOr(data.result, ''),
    error: textOr(data.error, null),
    stopReason: textOr(data.subagent_stop_reason, null),
  };
}

/** What the result of a call says about its sub-agent (`additional_kwargs`). null = nothing. */
export function readOutcome(extra: Dictionary): Omit<Task, 'steps' | 'stepCount'> | null {
  const status = textOr(extra.subagent_status, '');
  if (status === '') return null;
  return {
    status:
      status === 'polling_timed_out'
        ? 'timed_out'
        : (Object.values(ENDS).find((known) => known === status) ?? 'failed'),
    type: textOr(extra.subagent_type, ''),
    description: textOr(extra.subagent_description, ''),
    model: textOr(extra.subagent_model_name, null),
    tokens: tokensOf(extra.subagent_token_usage),
    stopReason: textOr(extra.subagent_stop_reason, null),
    result: textOr(extra.subagent_result_brief, ''),
    error: textOr(extra.subagent_error, null),
  };
}

/** Steps out of the events of a run, as they are kept. */
export function readSteps(events: unknown): readonly TaskStep[] {
  return listOf(events)
    .filter(isDictionary)
    .flatMap((event) => (isDictionary(event.content) ? (readStep(event.content.message) ?? []) : []))
    .slice(-MOST_STEPS);
}

function readStep(value: unknown): TaskStep | null {
  if (!isDictionary(value)) return null;
  const id = textOr(value.id, '');
  if (id === '') return null;
  const text = textOr(value.content, '');
  if (value.type === 'tool')
    return { kind: 'result', id, name: textOr(value.name, ''), text, failed: value.status === 'error' };
  return {
    kind: 'said',
    id,
    text,
    calls: listOf(value.tool_calls)
      .filter(isDictionary)
      .map((call) => ({ name: textOr(call.name, ''), hint: hintOf(call.args) })),
  };
}

function hintOf(args: unknown): string {
  if (typeof args === 'string') return args.slice(0, 160);
  if (!isDictionary(args)) return '';
  const values = ['command', 'path', 'query', 'url', 'pattern'].map((name) => args[name]);
  const known = values.find((value) => typeof value === 'string' && value !== '');
  const text = typeof known === 'string' ? known : JSON.stringify(args);
  return text.replace(/\s+/g, ' ').slice(0, 160);
}

function tokensOf(usage: unknown): number | null {
  return isDictionary(usage) && typeof usage.total_tokens === 'number' ? usage.total_tokens : null;
}
