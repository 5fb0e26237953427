import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { isGenuineUser } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { wrappedInput } from '../safety/tags.ts';

export const INPUT_SANITIZING = 'input-sanitizing';
/** Where the request keeps what the user really wrote. */
export const ORIGINAL_CONTENT = 'original_user_content';

type Block = Record<string, unknown>;

/**
 * What people write reaches the model between markers and without anything that looks like a block of the harness (MW-1). Only the request is
 * changed: the stored message stays what the user wrote. All messages of people are treated alike, and the same one always gives the same
 * text, so that a provider's prompt cache holds from turn to turn. What cannot be read is passed on as it is.
 */
export function inputSanitizingMiddleware(): Middleware {
  const known = new WeakMap<BaseMessage, BaseMessage>();
  const safe = (message: BaseMessage): BaseMessage => {
    if (!isGenuineUser(message)) return message;
    const before = known.get(message);
    if (before !== undefined) return before;
    let made = message;
    try {
      made = sanitized(message);
    } catch {
      // A message of an unknown shape is better passed on than lost.
    }
    known.set(message, made);
    return made;
  };
  return defineMiddleware({
    name: INPUT_SANITIZING,
    wrapModelCall: (request, handler) => handler({ ...request, messages: request.messages.map(safe) }),
  });
}

/** The message as the model may see it; the same object when there is nothing to do. */
export function sanitized(message: BaseMessage): BaseMessage {
  const content = safeContent(message.content as string | readonly (Block | string)[]);
  if (content === null) return message;
  const original = message.additional_kwargs[ORIGINAL_CONTENT];
  const text = typeof message.content === 'string' ? message.content : undefined;
  return new HumanMessage({
    content: content as never,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    additional_kwargs: {
      ...message.additional_kwargs,
      ...(original === undefined && text !== undefined ? { [ORIGINAL_CONTENT]: text } : {}),
    },
    response_metadata: message.response_metadata,
  });
}

function safeContent(content: string | readonly (Block | string)[]): string | Block[] | null {
  if (typeof content === 'string') {
    const text = wrappedInput(content);
    return text === content ? null : text;
  }
  // Neighbouring texts are one text: a tag that is split over two blocks is found too. Pictures keep their places.
  const blocks: Block[] = [];
  for (const block of content) {
    const text = typeof block === 'string' ? block : block.type === 'text' ? block.text : undefined;
    const last = blocks.at(-1);
    if (typeof text !== 'string') blocks.push(block as Block);
    else if (last?.type === 'text') last.text = `${last.text as string}${text}`;
    else blocks.push(typeof block === 'string' ? { type: 'text', text } : { ...block });
  }
  let changed = blocks.length !== content.length;
  for (const block of blocks) {
    if (block.type !== 'text') continue;
    const text = wrappedInput(block.text as string);
    changed ||= text !== block.text;
    block.text = text;
  }
  return changed ? blocks : null;
}
