import { type AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { isAi, isHuman, isTool } from '../loop/messages.ts';
import { type CallIdGrammar, COMMON_CALL_IDS } from './call-ids.ts';
import { type Call, cleanedCalls, hasCleanCalls } from './calls.ts';
import { fitted } from './fit.ts';
import { wellFormed } from './well-formed.ts';

export interface HistoryLimits {
  /** Upper bound of a request's text in characters, system prompt and tools not counted. */
  readonly maxCharacters: number;
}

const CONTINUES = '(The conversation continues.)';
const EMPTY = '(empty message)';

/**
 * Turns any history into one that every provider accepts, right before a model call (D5, MW-7). Pure and deterministic.
 *
 * - Each call of a model message has a name, an object of arguments and an id that is unique in the history and as the provider takes
 *   it (a thread may move from one provider to another), whichever of its views (structured, invalid, raw, content block) it stood in.
 * - Right behind a message with calls stand its results, one per call, in call order. Results found elsewhere are moved there, missing ones
 *   are replaced by an error, and results without a call are left out. A result belongs to the nearest earlier message that
 *   has its id; a result that could belong to several equal calls belongs to none.
 * - No empty model message, no empty message of a person, and a person speaks first.
 * - No text holds half of a surrogate pair.
 * - The text stays within the limit: old tool results are shortened first, then the oldest turns go. The newest turn of the
 *   user always stays.
 *
 * A history that is fine already is answered as the very same array.
 */
export function canonicalise(
  messages: readonly BaseMessage[],
  limits: HistoryLimits,
  ids: CallIdGrammar = COMMON_CALL_IDS,
): readonly BaseMessage[] {
  return wellFormed(fitted(isInOrder(messages, ids) ? messages : paired(messages, ids), limits.maxCharacters));
}

/** The common case, seen in one pass without copies: every message well formed, every call answered right behind its message. */
export function isInOrder(messages: readonly BaseMessage[], ids: CallIdGrammar = COMMON_CALL_IDS): boolean {
  let spoken = false;
  const taken = new Set<string>();
  for (let position = 0; position < messages.length; position++) {
    const message = messages[position];
    if (message === undefined || isTool(message)) return false;
    if (isHuman(message)) {
      spoken = true;
      if (isEmpty(message)) return false;
    } else if (isAi(message)) {
      if (!spoken || !hasCleanCalls(message, ids)) return false;
      const calls = message.tool_calls ?? [];
      if (calls.length === 0 && isEmpty(message)) return false;
      for (const call of calls) {
        const answer = messages[++position];
        if (!isTool(answer) || answer.tool_call_id !== call.id || taken.has(answer.tool_call_id)) return false;
        taken.add(answer.tool_call_id);
      }
    }
  }
  return true;
}

/** A model message with its calls, each with the result that was found for it. */
interface Asked {
  readonly message: AIMessage;
  readonly calls: readonly Call[];
  readonly results: (ToolMessage | undefined)[];
}

/** The general case: collects the calls and results of the whole history and writes them out in order. */
export function paired(messages: readonly BaseMessage[], ids: CallIdGrammar = COMMON_CALL_IDS): readonly BaseMessage[] {
  const asked = collect(messages, ids);
  const output: BaseMessage[] = [];
  let spoken = false;
  for (const [position, message] of messages.entries()) {
    if (isTool(message)) continue;
    if (isHuman(message)) {
      spoken = true;
      output.push(isEmpty(message) ? filled(message) : message);
      continue;
    }
    if (!isAi(message)) {
      output.push(message);
      continue;
    }
    const own = asked.get(position);
    if (own === undefined) continue;
    if (!spoken) output.push(new HumanMessage({ id: `${message.id ?? position}-start`, content: CONTINUES }));
    spoken = true;
    output.push(own.message);
    for (const [index, call] of own.calls.entries()) output.push(resultOf(own, call, index));
  }
  const same = output.length === messages.length && output.every((message, index) => message === messages[index]);
  return same ? messages : output;
}

/** Finds the calls of each model message and gives every result to its call. Model messages without anything to say are left out. */
function collect(messages: readonly BaseMessage[], ids: CallIdGrammar): Map<number, Asked> {
  const asked = new Map<number, Asked>();
  const taken = new Set<string>();
  // The newest message that has a call of this original id ('' = no id), with the numbers of those calls.
  const open = new Map<string, { readonly owner: Asked; readonly calls: number[]; readonly results: ToolMessage[] }>();
  const settle = (id: string): void => {
    const entry = open.get(id);
    open.delete(id);
    // Fewer or more results than equal calls: nobody can say whose they are.
    if (entry === undefined || (entry.calls.length > 1 && entry.results.length !== entry.calls.length)) return;
    for (const [number, index] of entry.calls.entries()) entry.owner.results[index] = entry.results[number];
  };
  for (const [position, message] of messages.entries()) {
    if (isAi(message)) {
      const { message: cleaned, calls } = cleanedCalls(message, position, taken, ids);
      if (calls.length === 0 && isEmpty(cleaned)) continue;
      const owner: Asked = { message: cleaned, calls, results: new Array(calls.length).fill(undefined) };
      asked.set(position, owner);
      const groups = new Map<string, number[]>();
      for (const [index, call] of calls.entries())
        groups.set(call.originalId, [...(groups.get(call.originalId) ?? []), index]);
      for (const [id, numbers] of groups) {
        settle(id);
        open.set(id, { owner, calls: numbers, results: [] });
      }
    } else if (isTool(message)) open.get(message.tool_call_id ?? '')?.results.push(message);
  }
  for (const id of [...open.keys()]) settle(id);
  return asked;
}

function resultOf(asked: Asked, call: Call, index: number): ToolMessage {
  const found = asked.results[index];
  if (found === undefined) return missing(asked.message, call, index);
  return found.tool_call_id === call.id ? found : readdressed(found, call.id);
}

function missing(message: AIMessage, call: Call, index: number): ToolMessage {
  return new ToolMessage({
    id: `${message.id ?? 'message'}-missing-${index}`,
    tool_call_id: call.id,
    name: call.name,
    status: 'error',
    content: call.problem === null ? interrupted(call.name) : unreadable(call.name, call.problem),
  });
}

const interrupted = (name: string): string =>
  `Error: the call of ${name} was interrupted before it gave a result. It may have taken effect or not; check before you repeat it.`;

function unreadable(name: string, problem: string): string {
  const advice =
    name === 'write_file'
      ? 'The content was probably cut off: write the file in several smaller calls, the later ones with append=true.'
      : 'Send the call again with one complete JSON object.';
  return `Error: the arguments of ${name} were not valid JSON (${problem.slice(0, 200)}). ${advice}`;
}

function readdressed(message: ToolMessage, id: string): ToolMessage {
  return new ToolMessage({
    content: message.content,
    tool_call_id: id,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    ...(message.status === undefined ? {} : { status: message.status }),
    ...(message.artifact === undefined ? {} : { artifact: message.artifact }),
    additional_kwargs: message.additional_kwargs,
    response_metadata: message.response_metadata,
  });
}

/** Reasoning alone is nothing that a provider takes as an answer. */
const SILENT = new Set(['thinking', 'redacted_thinking', 'reasoning', 'reasoning_content']);

function isEmpty(message: BaseMessage): boolean {
  if (typeof message.content === 'string') return message.content.trim() === '';
  return message.content.every((block) => {
    if (block.type === 'text') return typeof block.text !== 'string' || block.text.trim() === '';
    return SILENT.has(block.type);
  });
}

function filled(message: HumanMessage): HumanMessage {
  return new HumanMessage({
    content: EMPTY,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    additional_kwargs: message.additional_kwargs,
  });
}
