import { type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { isAi, isGenuineUser, isHuman, isTool, textOf } from '../loop/messages.ts';

const KEPT_HEAD = 1_500;
const KEPT_TAIL = 500;
/** What an image counts as, whatever its bytes: providers count pixels, not base64. */
const IMAGE_CHARACTERS = 6_000;
const MARKER =
  '(Earlier messages of this conversation were left out to fit the model. Ask the user if something is missing.)';
const MARKER_ID = 'earlier-messages-left-out';

/**
 * Keeps a well-formed history within `limit` characters. Shortens tool results from the oldest on, then leaves out whole turns from the
 * oldest on with a note in their place. The newest turn stays; of it only tool results may be shortened.
 * Answers the same array when everything fits.
 */
export function fitted(messages: readonly BaseMessage[], limit: number): readonly BaseMessage[] {
  let total = 0;
  for (const message of messages) total += sizeOf(message);
  if (total <= limit) return messages;
  const output: BaseMessage[] = [...messages];
  // A hidden note of the harness is no turn of a person's: the words that it stands behind must stay with it.
  const person = output.findLastIndex(isGenuineUser);
  const newest = Math.max(0, person === -1 ? output.findLastIndex(isHuman) : person);
  total = shorten(output, 0, newest, total, limit);
  if (total > limit) total = leaveOut(output, newest, total, limit);
  if (total > limit) shorten(output, 0, output.length, total, limit);
  const same = output.length === messages.length && output.every((message, index) => message === messages[index]);
  return same ? messages : output;
}

function shorten(output: BaseMessage[], from: number, to: number, total: number, limit: number): number {
  let size = total;
  for (let index = from; index < to && size > limit; index++) {
    const message = output[index];
    if (!isTool(message)) continue;
    const shorter = shortened(message);
    size += sizeOf(shorter) - sizeOf(message);
    output[index] = shorter;
  }
  return size;
}

function shortened(message: ToolMessage): ToolMessage {
  const text = textOf(message);
  if (text.length <= KEPT_HEAD + KEPT_TAIL + 100) return message;
  const left = text.length - KEPT_HEAD - KEPT_TAIL;
  return new ToolMessage({
    content: `${text.slice(0, KEPT_HEAD)}\n[${left} characters left out here; run the tool again if you need them]\n${text.slice(-KEPT_TAIL)}`,
    tool_call_id: message.tool_call_id,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    ...(message.status === undefined ? {} : { status: message.status }),
    additional_kwargs: message.additional_kwargs,
  });
}

/** Removes whole turns before position `newest`, oldest first, in place. System messages stay. Answers the new size. */
function leaveOut(output: BaseMessage[], newest: number, total: number, limit: number): number {
  let size = total + MARKER.length;
  let until = 0;
  while (until < newest && size > limit) {
    do {
      const message = output[until];
      if (message !== undefined && message.type !== 'system') size -= sizeOf(message);
      until++;
    } while (until < newest && !isHuman(output[until]));
  }
  const kept = output.slice(0, until).filter((message) => message.type === 'system');
  const hadTurns = until > kept.length;
  if (!hadTurns) return total;
  output.splice(0, until, ...kept, new HumanMessage({ id: MARKER_ID, content: MARKER }));
  return size;
}

/** An estimate in characters, cheap enough for every step: no serialization. */
export function sizeOf(message: BaseMessage): number {
  let size = 0;
  if (typeof message.content === 'string') size = message.content.length;
  else for (const block of message.content) size += sizeOfBlock(block as Record<string, unknown>);
  if (isAi(message)) for (const call of message.tool_calls ?? []) size += call.name.length + sizeOfValue(call.args, 3);
  return size;
}

function sizeOfBlock(block: Record<string, unknown>): number {
  if (typeof block.text === 'string') return block.text.length;
  if (typeof block.type === 'string' && block.type.includes('image')) return IMAGE_CHARACTERS;
  return sizeOfValue(block, 3);
}

function sizeOfValue(value: unknown, depth: number): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null || depth === 0) return 4;
  let size = 0;
  for (const [key, inner] of Object.entries(value)) size += key.length + sizeOfValue(inner, depth - 1);
  return size;
}
