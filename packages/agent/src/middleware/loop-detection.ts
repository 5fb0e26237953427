import { createHash } from 'node:crypto';
import type { AIMessage, BaseMessage, ToolMessage } from '@langchain/core/messages';
import { hiddenNote, isAi, isGenuineUser, isTool, readArguments, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type ToolCall } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { stoppedMessage } from './stopping.ts';

export const LOOP_DETECTION = 'loop-detection';

export interface LoopDetectionSettings {
  readonly enabled: boolean;
  /** The same calls so often within the window: the model is warned. */
  readonly warnThreshold: number;
  /** So often: the turn ends. */
  readonly hardLimit: number;
  /** Messages with calls that are looked back at. */
  readonly windowSize: number;
  /** So many fruitless calls of one tool: a warning, and the end. */
  readonly toolFreqWarn: number;
  readonly toolFreqHardLimit: number;
  readonly toolFreqOverrides: Readonly<Record<string, { readonly warn: number; readonly hardLimit: number }>>;
}

export const DEFAULT_LOOP_DETECTION: LoopDetectionSettings = {
  enabled: true,
  warnThreshold: 3,
  hardLimit: 5,
  windowSize: 20,
  toolFreqWarn: 30,
  toolFreqHardLimit: 50,
  toolFreqOverrides: {},
};

const MAX_WARNINGS = 4;
const READ_BUCKET = 200;
/** Arguments that say nothing about what a call does. */
const SILENT_ARGUMENTS: ReadonlySet<string> = new Set(['description']);
/** Only the pattern counts: the same search in another folder is still the same search. */
const SEARCHES: ReadonlySet<string> = new Set(['grep', 'glob']);

/**
 * An agent that repeats itself is warned, then stopped with what it has (MW-28).
 *
 * - **Repeats.** The calls of one message, in any order, are one key. Occurrences count that brought the same results (or failed): asking
 *   again is a loop, looking again at something that changes is not. From `warnThreshold` in the window on the model is warned at its next
 *   call; at `hardLimit` the calls are taken out and the turn ends with an explanation, `loop_capped`.
 * - **Frequency.** Per tool, calls of this turn that failed, or brought the same as an earlier equal one, count; many that bring something new are work.
 *
 * Everything is read from the history of the turn, so that it holds over a restart and starts anew with the next message of the user. A
 * warning stands in the request only, behind all results: it never parts a call from its result.
 */
export function loopDetectionMiddleware(settings: LoopDetectionSettings): Middleware {
  const keys = new WeakMap<BaseMessage, string>();
  const keyOf = (message: AIMessage): string => {
    const known = keys.get(message) ?? callsKey(message.tool_calls ?? []);
    keys.set(message, known);
    return known;
  };
  const most = farthest(settings);
  const tally = (messages: readonly BaseMessage[]): Tally => tallyOf(turnOf(messages, most), settings, keyOf);
  return defineMiddleware({
    name: LOOP_DETECTION,
    afterModel(state, runtime) {
      const last = state.messages.at(-1);
      if (!settings.enabled || !isAi(last) || (last.tool_calls ?? []).length === 0) return undefined;
      const { repeats, frequent } = tally(state.messages);
      const limited = frequent.find((tool) => tool.count >= tool.hardLimit);
      const note =
        repeats >= settings.hardLimit
          ? `[Stopped: the same ${last.tool_calls?.length === 1 ? 'call' : 'calls'} of ${namesOf(last)} came ${repeats} times without anything new. Tell me how to go on, or change what is asked.]`
          : limited !== undefined
            ? `[Stopped: ${limited.count} calls of ${limited.name} in this turn failed or repeated earlier ones. Tell me how to go on, or change what is asked.]`
            : null;
      if (note === null) return undefined;
      scopeOf(runtime).attempt.stopReason('loop_capped');
      return { messages: [stoppedMessage(last, note, 'loop_capped')] };
    },
    wrapModelCall(request, handler) {
      if (!settings.enabled) return handler(request);
      // Exactly at the threshold: once per key, whatever comes after it.
      const { repeats, frequent, last } = tally(request.state.messages);
      const warnings: string[] = [];
      if (last !== null && repeats === settings.warnThreshold)
        warnings.push(
          `You have made the same call of ${namesOf(last)} ${repeats} times with the same outcome. Another repeat will bring nothing new: use what you have, try something else, or give your answer.`,
        );
      for (const tool of frequent)
        if (tool.count === tool.warn && tool.justCounted)
          warnings.push(
            `${tool.count} calls of ${tool.name} in this turn failed or repeated earlier ones. Change the approach or give your answer.`,
          );
      if (warnings.length === 0) return handler(request);
      const note = hiddenNote(warnings.slice(0, MAX_WARNINGS).join('\n'), 'loop_warning');
      return handler({ ...request, messages: [...request.messages, note] });
    },
  });
}

interface Tally {
  /** Occurrences of the newest message's calls in the window, itself included. */
  readonly repeats: number;
  readonly frequent: readonly {
    readonly name: string;
    readonly count: number;
    readonly warn: number;
    readonly hardLimit: number;
    /** Did the newest message add to it? */
    readonly justCounted: boolean;
  }[];
  readonly last: AIMessage | null;
}

/** The messages since the user spoke, as far as they can matter: the cost of a step does not grow with the turn. */
function turnOf(messages: readonly BaseMessage[], most: number): readonly BaseMessage[] {
  let asked = 0;
  let from = messages.length;
  while (from > 0 && asked <= most) {
    const message = messages[from - 1] as BaseMessage;
    if (isGenuineUser(message)) break;
    if (isAi(message)) asked++;
    from--;
  }
  return messages.slice(from);
}

/** A window that even the largest limit fits into twice: what is older has been forgiven. */
const farthest = (settings: LoopDetectionSettings): number =>
  Math.max(
    settings.windowSize,
    2 * settings.toolFreqHardLimit,
    ...Object.values(settings.toolFreqOverrides).map((limit) => 2 * limit.hardLimit),
  );

function tallyOf(
  turn: readonly BaseMessage[],
  settings: LoopDetectionSettings,
  keyOf: (message: AIMessage) => string,
): Tally {
  const asked = turn.filter((message): message is AIMessage => isAi(message) && (message.tool_calls ?? []).length > 0);
  const last = asked.at(-1) ?? null;
  if (last === null) return { repeats: 0, frequent: [], last };
  const key = keyOf(last);
  const window = asked.slice(-settings.windowSize, -1).filter((message) => keyOf(message) === key);
  const answers = resultsIn(turn);
  const newest = window.at(-1);
  // The newest call has no result before it ran; the others must agree with the one before it.
  const outcome = newest === undefined ? '' : outcomeOf(newest, answers);
  const same = window.filter((message) => outcomeOf(message, answers) === outcome).length;
  // After its results are there, the newest message counts only if it brought the same once more.
  const own = hasResults(last, answers) && newest !== undefined && outcomeOf(last, answers) !== outcome ? 0 : 1;
  return { repeats: own === 0 ? 1 : same + 1, frequent: frequencies(asked, answers, settings), last };
}

function resultsIn(turn: readonly BaseMessage[]): ReadonlyMap<string, ToolMessage> {
  const found = new Map<string, ToolMessage>();
  for (const message of turn) if (isTool(message)) found.set(message.tool_call_id, message);
  return found;
}

const hasResults = (message: AIMessage, answers: ReadonlyMap<string, ToolMessage>): boolean =>
  (message.tool_calls ?? []).every((call) => answers.has(call.id ?? ''));

/** What a message's calls brought. Failures are alike, whatever their text: it often holds a time or a number. */
function outcomeOf(message: AIMessage, answers: ReadonlyMap<string, ToolMessage>): string {
  return (message.tool_calls ?? [])
    .map((call) => {
      const answer = answers.get(call.id ?? '');
      if (answer === undefined) return '?';
      return resultOf(answer);
    })
    .sort()
    .join('\n');
}

const results = new WeakMap<ToolMessage, string>();

function resultOf(answer: ToolMessage): string {
  if (answer.status === 'error') return 'error';
  const known = results.get(answer);
  if (known !== undefined) return known;
  const text = textOf(answer);
  const made = hashed(`${text.length}:${text.slice(0, 2_000)}:${text.slice(-2_000)}`);
  results.set(answer, made);
  return made;
}

function frequencies(
  asked: readonly AIMessage[],
  answers: ReadonlyMap<string, ToolMessage>,
  settings: LoopDetectionSettings,
): Tally['frequent'] {
  const seen = new Set<string>();
  const counts = new Map<string, { count: number; just: boolean }>();
  for (const [position, message] of asked.entries())
    for (const call of message.tool_calls ?? []) {
      const answer = answers.get(call.id ?? '');
      // The newest calls have no results yet: they count once they are there.
      const key = answer === undefined ? null : `${callKey(call)}\n${resultOf(answer)}`;
      const fruitless = answer?.status === 'error' || (key !== null && seen.has(key));
      if (key !== null) seen.add(key);
      if (!fruitless) continue;
      const count = counts.get(call.name) ?? { count: 0, just: false };
      counts.set(call.name, { count: count.count + 1, just: count.just || position === asked.length - 1 });
    }
  return [...counts].map(([name, { count, just }]) => {
    const own = settings.toolFreqOverrides[name];
    return {
      name,
      count,
      warn: own?.warn ?? settings.toolFreqWarn,
      hardLimit: own?.hardLimit ?? settings.toolFreqHardLimit,
      justCounted: just,
    };
  });
}

const namesOf = (message: AIMessage): string =>
  [...new Set((message.tool_calls ?? []).map((call) => call.name))].join(', ');

/** A key for the calls of one message, whatever their order. */
export const callsKey = (calls: readonly ToolCall[]): string => hashed(calls.map(callKey).sort().join('\n'));

const knownKeys = new WeakMap<object, string>();

/** A key for one call: its name and what matters of its arguments. */
export function callKey(call: ToolCall): string {
  const known = knownKeys.get(call);
  if (known !== undefined) return known;
  const given: unknown = call.args;
  const args = typeof given === 'string' ? (readArguments(given) ?? { text: given }) : call.args;
  const key = hashed(`${call.name}\n${JSON.stringify(normalised(call.name, args))}`);
  knownKeys.set(call, key);
  return key;
}

function normalised(name: string, args: Readonly<Record<string, unknown>>): unknown {
  if (SEARCHES.has(name) && typeof args.pattern === 'string') return { pattern: args.pattern };
  const kept = Object.entries(args).filter(([key]) => !SILENT_ARGUMENTS.has(key));
  if (name !== 'read_file') return sorted(Object.fromEntries(kept));
  const bucket = (value: unknown): unknown => (typeof value === 'number' ? Math.floor(value / READ_BUCKET) : value);
  return sorted(Object.fromEntries(kept.map(([key, value]) => [key, key.endsWith('_line') ? bucket(value) : value])));
}

function sorted(value: unknown, depth = 0): unknown {
  if (typeof value !== 'object' || value === null || depth > 8) return value;
  if (Array.isArray(value)) return value.map((item) => sorted(item, depth + 1));
  return Object.fromEntries(
    Object.entries(value)
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([key, inner]) => [key, sorted(inner, depth + 1)]),
  );
}

const hashed = (text: string): string => createHash('sha1').update(text).digest('hex');
