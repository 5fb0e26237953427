import type { BaseMessage } from '@langchain/core/messages';
import type { CapturedMessage, ClaimedCapture } from '@reindeer/protocol';
import { humanInputResponse, isAi, isGenuineUser, textOf } from '../loop/messages.ts';
import { ORIGINAL_CONTENT } from '../middleware/input-sanitizing.ts';
import { withoutThinking } from '../models/ask-once.ts';

const LONGEST = 1_000;
const HEAD = 500;
/** Lists of files that the harness puts before a user's words. */
const UPLOADS = /<(uploaded_files|current_uploads)>[\s\S]{0,100000}?<\/\1>/g;

/**
 * What people said and what they were answered in the end (MEM-3): no tool calls, no results, no messages of the harness. A turn that only
 * brings files says nothing.
 */
export function conversationFrom(messages: readonly BaseMessage[]): CapturedMessage[] {
  const found: CapturedMessage[] = [];
  let answer: CapturedMessage | null = null;
  let speaks = false;
  const closeTurn = (): void => {
    if (answer !== null && speaks) found.push(answer);
    answer = null;
  };
  for (const message of messages) {
    if (isGenuineUser(message)) {
      closeTurn();
      const text = saidIn(message);
      speaks = text !== '';
      if (speaks && message.id !== undefined) found.push({ id: message.id, role: 'user', text: cut(text) });
    } else if (isAi(message) && (message.tool_calls ?? []).length === 0) {
      const text = withoutThinking(textOf(message)).trim();
      if (text !== '' && message.id !== undefined) answer = { id: message.id, role: 'assistant', text: cut(text) };
    }
  }
  closeTurn();
  return found;
}

function saidIn(message: BaseMessage): string {
  const original = message.additional_kwargs[ORIGINAL_CONTENT];
  const reply = humanInputResponse(message);
  const text = reply?.value ?? (typeof original === 'string' ? original : textOf(message));
  return text.replace(UPLOADS, '').trim();
}

const cut = (text: string): string =>
  text.length <= LONGEST ? text : `${text.slice(0, HEAD)}\n…\n${text.slice(-HEAD)}`;

/**
 * Messages behind the one that was learned from last. When that one is gone from the conversation, all of them: a history that was shortened
 * or rewritten begins anew.
 */
export function unlearned(capture: Pick<ClaimedCapture, 'messages' | 'watermark'>): readonly CapturedMessage[] {
  const { messages, watermark } = capture;
  return watermark === null ? messages : messages.slice(messages.findIndex(({ id }) => id === watermark) + 1);
}
