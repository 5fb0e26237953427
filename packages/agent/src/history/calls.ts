import { AIMessage } from '@langchain/core/messages';
import { UNKNOWN_TOOL } from '../loop/normalise-calls.ts';
import { type CallIdGrammar, callId } from './call-ids.ts';

/** One tool call as a request needs it. */
export interface Call {
  readonly id: string;
  /** The id as it stood in the history; '' = none. Results are found by it. */
  readonly originalId: string;
  readonly name: string;
  readonly args: Record<string, unknown>;
  /** Why its arguments could not be read; null = they could. */
  readonly problem: string | null;
}

/** Do the structured calls of a message say everything, in good form? Costs nothing beyond looking. */
export function hasCleanCalls(message: AIMessage, ids: CallIdGrammar): boolean {
  const calls = message.tool_calls ?? [];
  for (const [index, call] of calls.entries()) {
    if (!call.name || !call.id || !ids.fits.test(call.id) || !isRecord(call.args)) return false;
    for (let other = 0; other < index; other++) if (calls[other]?.id === call.id) return false;
  }
  const invalid = message.invalid_tool_calls ?? [];
  if (invalid.length > 0 && !invalid.every(({ id }) => calls.some((call) => call.id === id))) return false;
  if (message.additional_kwargs.tool_calls !== undefined) return false;
  return typeof message.content === 'string' || !hasForeignBlocks(message, new Set(calls.map((call) => call.id ?? '')));
}

interface Found {
  readonly id: string;
  readonly name: string;
  readonly args: unknown;
  readonly problem: string | null;
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown): string => (typeof value === 'string' ? value : '');

/**
 * The calls of a model message from all its views, each once: structured calls, invalid calls, the provider's raw calls, and
 * content blocks. Answers the message itself when its structured calls say everything, else a cleaned copy.
 *
 * @param taken ids of the calls of earlier messages; those of this one are added. Some providers count calls from zero in every
 *   answer, and others refuse a request in which an id comes twice.
 * @param ids what the provider takes as an id
 */
export function cleanedCalls(
  message: AIMessage,
  position: number,
  taken: Set<string>,
  ids: CallIdGrammar,
): { message: AIMessage; calls: readonly Call[] } {
  const found = allViews(message);
  const own = new Set<string>();
  let changed = found.length !== (message.tool_calls ?? []).length;
  const calls = found.map((call, index): Call => {
    const id = callId(call.id, ownId(message.id ?? String(position), index), taken, ids);
    taken.add(id);
    own.add(id);
    const name = call.name === '' ? UNKNOWN_TOOL : call.name;
    const args = isRecord(call.args) ? call.args : {};
    if (id !== call.id || name !== call.name || args !== call.args) changed = true;
    return { id, originalId: call.id, name, args, problem: call.problem };
  });
  if (!changed && !hasForeignBlocks(message, own)) return { message, calls };
  return { message: rewritten(message, calls), calls };
}

const ownId = (messageId: string, index: number): string =>
  `call_${messageId.replaceAll(/[^A-Za-z0-9_-]/g, '').slice(-26)}_${index}`;

function allViews(message: AIMessage): Found[] {
  const structured: Found[] = (message.tool_calls ?? []).map((call) => ({
    id: text(call.id),
    name: text(call.name),
    args: call.args,
    problem: null,
  }));
  const known = new Set(structured.map((call) => call.id).filter((id) => id !== ''));
  const others: Found[] = [];
  const add = (call: Found): void => {
    // A call without an id can only be told from the structured ones when there are none.
    const isNew = call.id === '' ? structured.length === 0 && call.problem !== null : !known.has(call.id);
    if (!isNew) return;
    if (call.id !== '') known.add(call.id);
    others.push(call);
  };
  for (const call of message.invalid_tool_calls ?? [])
    add({ id: text(call.id), name: text(call.name), args: {}, problem: call.error ?? 'malformed' });
  const invalid = others.length > 0;
  for (const raw of rawCalls(message)) if (raw.id !== '' || !invalid) add(raw);
  for (const block of blocks(message)) if (block.type === 'tool_use') add(fromBlock(block));
  return [...structured, ...others];
}

function rawCalls(message: AIMessage): Found[] {
  const raw: unknown = message.additional_kwargs.tool_calls;
  if (!Array.isArray(raw)) return [];
  return raw.filter(isRecord).map((call) => {
    const inner = isRecord(call.function) ? call.function : {};
    return { id: text(call.id), name: text(inner.name), ...parsed(inner.arguments) };
  });
}

const fromBlock = (block: Record<string, unknown>): Found => ({
  id: text(block.id),
  name: text(block.name),
  ...parsed(block.input),
});

function parsed(value: unknown): { args: unknown; problem: string | null } {
  if (isRecord(value)) return { args: value, problem: null };
  if (typeof value !== 'string' || value === '') return { args: {}, problem: null };
  try {
    const args: unknown = JSON.parse(value);
    return isRecord(args) ? { args, problem: null } : { args: {}, problem: 'not an object' };
  } catch {
    return { args: {}, problem: 'malformed JSON' };
  }
}

function blocks(message: AIMessage): Record<string, unknown>[] {
  return typeof message.content === 'string' ? [] : (message.content as unknown[]).filter(isRecord);
}

/** Does the content hold calls that are not among the structured ones, or with other names or arguments? */
function hasForeignBlocks(message: AIMessage, ids: ReadonlySet<string>): boolean {
  for (const block of blocks(message)) {
    if (block.type !== 'tool_use') continue;
    if (!ids.has(text(block.id))) return true;
    const call = message.tool_calls?.find((candidate) => candidate.id === block.id);
    if (call?.name !== block.name) return true;
    // The provider's adapter takes the structured arguments for a streamed block (text), and the block's own ones otherwise.
    if (isRecord(block.input) && JSON.stringify(block.input) !== JSON.stringify(call?.args)) return true;
  }
  return false;
}

function rewritten(message: AIMessage, calls: readonly Call[]): AIMessage {
  const { tool_calls: _, function_call: __, ...kwargs } = message.additional_kwargs;
  // Marks of the provider on single calls go by their ids.
  if (isRecord(kwargs.thought_signatures)) kwargs.thought_signatures = renamed(kwargs.thought_signatures, calls);
  const content =
    typeof message.content === 'string'
      ? message.content
      : message.content.filter((block) => block.type !== 'tool_use' && block.type !== 'input_json_delta');
  return new AIMessage({
    content,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    additional_kwargs: kwargs,
    response_metadata: message.response_metadata,
    tool_calls: calls.map(({ id, name, args }) => ({ id, name, args, type: 'tool_call' as const })),
    ...(message.usage_metadata === undefined ? {} : { usage_metadata: message.usage_metadata }),
  });
}

const renamed = (marks: Readonly<Record<string, unknown>>, calls: readonly Call[]): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(marks).map(([key, mark]) => {
      const call = key === '' ? undefined : calls.find(({ originalId }) => originalId === key);
      return [call?.id ?? key, mark];
    }),
  );
