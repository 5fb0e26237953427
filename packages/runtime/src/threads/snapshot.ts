import type { GraphSnapshot, Json, JsonObject, StateSnapshot } from '@reindeer/protocol';
import { toWire, toWireObject } from '../stream/wire.ts';

type Checkpoint = StateSnapshot['checkpoint'];

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** The `checkpoint` object of LangGraph's API out of a config; null when the config names none. */
export function checkpointOf(configurable: Readonly<Record<string, unknown>> | undefined): Checkpoint | null {
  const id = textOf(configurable?.checkpoint_id);
  if (configurable === undefined || id === '') return null;
  return {
    thread_id: textOf(configurable.thread_id),
    checkpoint_ns: textOf(configurable.checkpoint_ns),
    checkpoint_id: id,
    checkpoint_map: null,
  };
}

function isSnapshot(value: unknown): value is GraphSnapshot {
  return typeof value === 'object' && value !== null && 'values' in value && 'tasks' in value;
}

function taskOf(task: GraphSnapshot['tasks'][number]): JsonObject {
  const state = task.state as { configurable?: Record<string, unknown> } | undefined;
  return {
    id: task.id,
    name: task.name,
    path: toWire(task.path ?? null),
    error: errorText(task.error),
    interrupts: interruptsOf(task),
    checkpoint: isSnapshot(state) ? checkpointOf(state.config.configurable) : checkpointOf(state?.configurable),
    state: isSnapshot(state) ? (apiState(toStateSnapshot(state)) as unknown as Json) : null,
    result: toWire(task.result ?? null),
  };
}

function errorText(error: unknown): string | null {
  if (error === undefined || error === null) return null;
  if (typeof error === 'string') return error;
  if (error instanceof Error) return error.message;
  return JSON.stringify(toWire(error));
}

const interruptsOf = (task: GraphSnapshot['tasks'][number]): Json[] =>
  task.interrupts.map((interrupt) => ({ id: interrupt.id ?? null, value: toWire(interrupt.value ?? null) }));

/**
 * LangGraph leaves a node out once an answer to it is stored, also when the node asks once more. Clients take an empty list for a
 * thread that has ended, so whoever asks stands in it.
 */
function nextOf({ next, tasks }: GraphSnapshot): string[] {
  const asking = tasks.filter((task) => task.interrupts.length > 0).map((task) => task.name);
  return [...next, ...asking.filter((name) => !next.includes(name))];
}

/** A state of LangGraph in the form that the API shows. */
export function toStateSnapshot(snapshot: GraphSnapshot): StateSnapshot {
  const checkpoint = checkpointOf(snapshot.config.configurable);
  return {
    values: toWireObject(snapshot.values),
    next: nextOf(snapshot),
    metadata: toWireObject(snapshot.metadata ?? {}),
    checkpoint: checkpoint ?? {
      thread_id: textOf(snapshot.config.configurable?.thread_id),
      checkpoint_ns: '',
      checkpoint_id: '',
      checkpoint_map: null,
    },
    parentCheckpoint: checkpointOf(snapshot.parentConfig?.configurable),
    createdAt: snapshot.createdAt ?? null,
    tasks: snapshot.tasks.map(taskOf),
    interrupts: snapshot.tasks.flatMap(interruptsOf),
  };
}

/** The names that LangGraph's API uses. */
export function apiState(state: StateSnapshot): JsonObject {
  return {
    values: state.values,
    next: state.next,
    metadata: state.metadata,
    checkpoint: state.checkpoint,
    parent_checkpoint: state.parentCheckpoint,
    created_at: state.createdAt,
    tasks: state.tasks,
    interrupts: state.interrupts,
  };
}
