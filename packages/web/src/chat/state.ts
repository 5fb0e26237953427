import { type Goal, readGoal } from './goal.ts';
import { type Interrupt, readInterrupts } from './interrupts.ts';
import { appendChunk, isChunk, type LiveMessage, showLive } from './live.ts';
import { type ChatMessage, readMessage } from './message.ts';
import { type Task, taskEvent } from './tasks.ts';
import { readTodos, type Todo } from './todos.ts';
import { type Dictionary, isDictionary, isWireMessage, listOf, textOr, type WireMessage } from './wire.ts';

/**
 * One chat as the page knows it. `settled` is what the newest checkpoint says, `newer` what the stream has told since: whole
 * messages that no checkpoint holds yet, and the ones that are being written. A run goes
 *
 *   none → starting → running → (stopping) → ended
 *
 * and `ended` keeps how, until the next one starts. Everything here is a pure function of the events.
 */
export interface ChatState {
  readonly threadId: string;
  readonly settled: readonly ChatMessage[];
  readonly newer: readonly (ChatMessage | LiveMessage)[];
  readonly title: string | null;
  readonly artifacts: readonly string[];
  /** The agent's plan; empty = none. */
  readonly todos: readonly Todo[];
  /** null = none. */
  readonly goal: Goal | null;
  /** The custom agent that this chat has made; null = none. */
  readonly madeAgent: string | null;
  /** Sub-agents that this page has seen at work, by the call that began each. */
  readonly tasks: ReadonlyMap<string, Task>;
  /** Earlier messages that were replaced by a summary; 0 = none. */
  readonly summarised: number;
  readonly interrupts: readonly Interrupt[];
  /** Nodes that would run next: a run that failed can go on from there. */
  readonly next: readonly string[];
  readonly run: ActiveRun | null;
  readonly ended: EndedRun | null;
  readonly notice: RetryNotice | null;
  readonly loading: boolean;
  readonly loadError: Trouble | null;
  /** The last wish to stop could not be delivered. */
  readonly stopTrouble: Trouble | null;
}

export interface ActiveRun {
  readonly id: string | null;
  readonly phase: 'starting' | 'running' | 'stopping' | 'reconnecting';
}

export interface EndedRun {
  readonly how: 'success' | 'failed' | 'refused' | 'stopped' | 'stop-slow' | 'timeout' | 'lost';
  readonly trouble: Trouble | null;
}

/** Something that went wrong, as it is shown: what the server said, and what kind it is for our own words. */
export interface Trouble {
  readonly kind: 'network' | 'token' | 'busy' | 'conflict' | 'input' | 'not-found' | 'too-large' | 'server' | 'model';
  readonly detail: string | null;
}

export interface RetryNotice {
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly waitMs: number;
  readonly reason: string;
}

export type ChatEvent =
  | { readonly kind: 'loading' }
  | {
      readonly kind: 'loaded';
      readonly values: Dictionary;
      readonly next: readonly string[];
      readonly interrupts: unknown;
    }
  | { readonly kind: 'load-failed'; readonly trouble: Trouble }
  | { readonly kind: 'submitted'; readonly message: Dictionary | null }
  | { readonly kind: 'run'; readonly runId: string }
  | { readonly kind: 'part'; readonly event: string; readonly data: unknown }
  | { readonly kind: 'reconnecting' }
  | { readonly kind: 'stopping' }
  | { readonly kind: 'stop-failed'; readonly trouble: Trouble }
  /** The server did not take what was submitted. */
  | {
      readonly kind: 'refused';
      readonly messageId: string;
      readonly trouble: Trouble;
      /** What was asked before, and is asked still. */
      readonly interrupts: readonly Interrupt[];
    }
  | { readonly kind: 'ended'; readonly ended: EndedRun }
  /** The turn of this message is about to be answered anew: it and what came after it are no longer so. */
  | { readonly kind: 'rewound'; readonly messageId: string }
  | { readonly kind: 'title'; readonly title: string | null };

export function emptyChat(threadId: string): ChatState {
  return {
    threadId,
    settled: [],
    newer: [],
    title: null,
    artifacts: [],
    todos: [],
    goal: null,
    madeAgent: null,
    tasks: new Map(),
    summarised: 0,
    interrupts: [],
    next: [],
    run: null,
    ended: null,
    notice: null,
    loading: false,
    loadError: null,
    stopTrouble: null,
  };
}

export function reduceChat(state: ChatState, event: ChatEvent): ChatState {
  switch (event.kind) {
    case 'loading':
      return { ...state, loading: true, loadError: null };
    case 'load-failed':
      return { ...state, loading: false, loadError: event.trouble };
    case 'loaded': {
      const settled = readMessages(event.values.messages);
      return {
        ...applyValues({ ...state, settled: [], goal: null }, event.values, settled),
        // The server's word replaces everything, except what was sent just now and is not there yet.
        newer:
          state.run === null ? [] : state.newer.filter((entry) => !settled.some((message) => message.id === entry.id)),
        interrupts: readInterrupts(event.interrupts),
        next: event.next,
        loading: false,
        loadError: null,
      };
    }
    case 'submitted': {
      const message = event.message === null ? null : readMessage(event.message as unknown as WireMessage, 0);
      return {
        ...state,
        newer:
          message === null || state.settled.some((entry) => entry.id === message.id)
            ? state.newer
            : replaceOrAdd(state.newer, message),
        interrupts: [],
        run: { id: null, phase: 'starting' },
        ended: null,
        notice: null,
        loadError: null,
      };
    }
    case 'run':
      return {
        ...state,
        run: { id: event.runId, phase: state.run?.phase === 'stopping' ? 'stopping' : 'running' },
        ended: null,
      };
    case 'reconnecting':
      return state.run === null || state.run.phase === 'stopping'
        ? state
        : { ...state, run: { ...state.run, phase: 'reconnecting' } };
    case 'stopping':
      return state.run === null ? state : { ...state, run: { ...state.run, phase: 'stopping' }, stopTrouble: null };
    case 'ended':
      return {
        ...state,
        run: null,
        ended: event.ended,
        notice: null,
        stopTrouble: null,
        newer: state.newer.map(settle),
      };
    case 'stop-failed':
      return {
        ...state,
        run: state.run === null ? null : { ...state.run, phase: 'running' },
        stopTrouble: event.trouble,
      };
    case 'refused':
      return {
        ...state,
        run: null,
        ended: { how: 'refused', trouble: event.trouble },
        interrupts: event.interrupts,
        newer: state.newer.filter((entry) => entry.id !== event.messageId),
      };
    case 'rewound': {
      const at = state.settled.findIndex((message) => message.id === event.messageId);
      const begin = state.settled
        .slice(0, at + 1)
        .findLastIndex((message) => message.kind === 'human' && !message.hidden);
      return begin < 0 ? state : { ...state, settled: state.settled.slice(0, begin), newer: [], interrupts: [] };
    }
    case 'title':
      return { ...state, title: event.title };
    case 'part':
      return reducePart(state, event.event, event.data);
  }
}

function reducePart(before: ChatState, event: string, data: unknown): ChatState {
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

function applyValues(state: ChatState, values: Dictionary, settled: readonly ChatMessage[]): ChatState {
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

function replaceOrAdd<Entry extends { readonly id: string }>(
  entries: readonly Entry[],
  entry: Entry,
): readonly Entry[] {
  const index = entries.findIndex((other) => other.id === entry.id);
  return index < 0 ? [...entries, entry] : entries.with(index, entry);
}

/** What was being written when the run ended stays as far as it came. */
function settle(entry: ChatMessage | LiveMessage): ChatMessage {
  return 'kind' in entry ? entry : { ...showLive(entry), streaming: false };
}

function readMessages(messages: unknown): ChatMessage[] {
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

/** All messages in order, as they are shown now. */
export function allMessages(state: Pick<ChatState, 'settled' | 'newer'>): readonly ChatMessage[] {
  if (state.newer.length === 0) return state.settled;
  return [...state.settled, ...state.newer.map((entry) => ('kind' in entry ? entry : showLive(entry)))];
}

/** How a run that went wrong is tried again: from its last checkpoint, or by sending the newest message once more. */
export function retryPlan(
  state: ChatState,
): { readonly how: 'continue' } | { readonly how: 'resend'; readonly text: string } | null {
  if (state.run !== null) return null;
  if (state.next.length > 0 && state.interrupts.length === 0) return { how: 'continue' };
  const newest = allMessages(state).findLast((message) => message.kind === 'human' && !message.hidden);
  return newest?.kind === 'human' && newest.text !== '' ? { how: 'resend', text: newest.text } : null;
}
