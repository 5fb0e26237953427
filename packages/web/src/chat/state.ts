import type { Goal } from './goal.ts';
import { type Interrupt, readInterrupts } from './interrupts.ts';
import { type LiveMessage, showLive } from './live.ts';
import { type ChatMessage, readMessage } from './message.ts';
import { applyValues, readMessages, reducePart, replaceOrAdd } from './stream-part.ts';
import type { Task } from './tasks.ts';
import type { Todo } from './todos.ts';
import type { Dictionary, WireMessage } from './wire.ts';

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

/** What was being written when the run ended stays as far as it came. */
function settle(entry: ChatMessage | LiveMessage): ChatMessage {
  return 'kind' in entry ? entry : { ...showLive(entry), streaming: false };
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
