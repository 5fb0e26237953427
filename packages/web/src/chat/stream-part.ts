import { readGoal } from './goal.ts';
import { readInterrupts } from './interrupts.ts';
import { appendChunk, isChunk } from './live.ts';
import { type ChatMessage, readMessage } from './message.ts';
import type { ChatState } from './state.ts';
import { taskEvent } from './tasks.ts';
import { readTodos } from './todos.ts';
import { type Dictionary, isDictionary, isWireMessage, listOf, textOr, type WireMessage } from './wire.ts';

/** A part of a run's stream: a snapshot, a message or a piece of one, or something that the agent tells beside them. */
export function reducePart(before: ChatState, event: string, data: unknown): ChatState {
  // Frames of sub-graphs carry their namespace behind a bar; the page shows the root only.
  if (event.includes('|')) return before;
  // Anything that comes shows that the connection stands.
  const state =
    before.run?.phase === 'reconnecting' ? { ...before, run: { ...before.run, phase: 'running' as const } } : before;
  switch (event) {
    case 'values':
      return isDictionary(data) ? reduceValues(state, data) : state;
    case 'messages': {
      const message = listOf(data)[0];
      return isWireMessage(message) ? reduceMessage({ ...state, notice: null }, message) : state;
    }
    case 'custom':
      return isDictionary(data) ? reduceCustom(state, data) : state;
    default:
      return state;
  }
}

function reduceValues(state: ChatState, values: Dictionary): ChatState {
  const settled = readMessages(values.messages);
  // A reader that joins late is told old snapshots first: they hold a beginning of what is known already.
  if (
    settled.length < state.settled.length &&
    settled.every((message, index) => message.id === state.settled[index]?.id)
  ) {
    return state;
  }
  const interrupts = values.__interrupt__ === undefined ? state.interrupts : readInterrupts(values.__interrupt__);
  return { ...applyValues(state, values, settled), interrupts };
}

export function applyValues(state: ChatState, values: Dictionary, settled: readonly ChatMessage[]): ChatState {
  const ids = new Set(settled.map((message) => message.id));
  return {
    ...state,
    settled,
    newer: state.newer.filter((entry) => !ids.has(entry.id)),
    title: textOr(values.title, state.title),
    // A snapshot without the channel does not mean that the files are gone.
    artifacts: Array.isArray(values.artifacts)
      ? values.artifacts.filter((path) => typeof path === 'string')
      : state.artifacts,
    todos: Array.isArray(values.todos) ? readTodos(values.todos) : state.todos,
    goal: values.goal === undefined ? state.goal : readGoal(values.goal),
    madeAgent: textOr(values.created_agent_name, state.madeAgent),
    summarised: isDictionary(values.compaction) ? countOf(values.compaction.removedMessages) : state.summarised,
  };
}

const countOf = (value: unknown): number => (typeof value === 'number' && value > 0 ? value : 0);

function reduceMessage(state: ChatState, wire: WireMessage): ChatState {
  const id = textOr(wire.id, '');
  if (id === '') return state;
  // The server starts this message over, or it is gone; of what a snapshot holds, the next snapshot decides.
  if (wire.type === 'remove') return { ...state, newer: state.newer.filter((entry) => entry.id !== id) };
  const known = state.newer.find((entry) => entry.id === id);
  if (isChunk(wire)) {
    // Pieces of a message that is complete already are old ones.
    if (state.settled.some((message) => message.id === id)) return state;
    if (known !== undefined && 'kind' in known) return state;
    return { ...state, newer: replaceOrAdd(state.newer, appendChunk(known, id, wire)) };
  }
  const message = readMessage(wire, state.settled.length + state.newer.length);
  if (message === null) return state;
  const place = state.settled.findIndex((entry) => entry.id === id);
  if (place >= 0) return { ...state, settled: state.settled.with(place, message) };
  return { ...state, newer: replaceOrAdd(state.newer, message) };
}

function reduceCustom(state: ChatState, data: Dictionary): ChatState {
  const taskId = textOr(data.task_id, '');
  const task = taskId === '' ? null : taskEvent(state.tasks.get(taskId), data);
  if (task !== null) return { ...state, tasks: new Map([...state.tasks, [taskId, task]]) };
  if (data.type !== 'llm_retry') return state;
  const number = (value: unknown) => (typeof value === 'number' ? value : 0);
  return {
    ...state,
    notice: {
      attempt: number(data.attempt),
      maxAttempts: number(data.max_attempts),
      waitMs: number(data.wait_ms),
      reason: textOr(data.message, textOr(data.reason, '')),
    },
  };
}

export function replaceOrAdd<Entry extends { readonly id: string }>(
  entries: readonly Entry[],
  entry: Entry,
): readonly Entry[] {
  const index = entries.findIndex((other) => other.id === entry.id);
  return index < 0 ? [...entries, entry] : entries.with(index, entry);
}

export function readMessages(messages: unknown): ChatMessage[] {
  const seen = new Map<string, number>();
  const result: ChatMessage[] = [];
  listOf(messages).forEach((entry, position) => {
    const message = isWireMessage(entry) ? readMessage(entry, position) : null;
    if (message === null) return;
    const place = seen.get(message.id);
    if (place === undefined) {
      seen.set(message.id, result.length);
      result.push(message);
    } else {
      result[place] = message;
    }
  });
  return result;
}
