import { type BaseMessage, SystemMessage } from '@langchain/core/messages';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';

export const COALESCING = 'coalescing';
/** In `additional_kwargs` of a message that tells the date: of several only the newest is kept. */
export const DATE_REMINDER = 'reindeer_date';

/**
 * One leading system message (MW-26): strict providers take no other. System messages from the list are joined to it, separated by blank
 * lines, and of the date reminders only the newest stays. The same parts give the same object, so that a step pays for a comparison only.
 */
export function coalescingMiddleware(): Middleware {
  let made: {
    readonly base: SystemMessage;
    readonly parts: readonly BaseMessage[];
    readonly joined: SystemMessage;
  } | null = null;
  return defineMiddleware({
    name: COALESCING,
    wrapModelCall(request, handler) {
      const found = request.messages.filter((message) => message.type === 'system');
      if (found.length === 0) return handler(request);
      const newest = found.findLast((message) => message.additional_kwargs[DATE_REMINDER] !== undefined);
      const parts = found.filter(
        (message) => message.additional_kwargs[DATE_REMINDER] === undefined || message === newest,
      );
      const base = request.systemMessage;
      const same =
        made !== null &&
        made.base === base &&
        made.parts.length === parts.length &&
        made.parts.every((part, index) => part === parts[index] || part.text === parts[index]?.text);
      if (!same || made === null) made = { base, parts, joined: joined(base, parts) };
      const messages = request.messages.filter((message) => message.type !== 'system');
      return handler({ ...request, messages, systemMessage: made.joined });
    },
  });
}

function joined(base: SystemMessage, parts: readonly BaseMessage[]): SystemMessage {
  const kwargs = Object.assign({}, base.additional_kwargs, ...parts.map((part) => part.additional_kwargs));
  const texts = [base.text, ...parts.map((part) => part.text)].filter((text) => text.trim() !== '');
  return new SystemMessage({
    content: texts.join('\n\n'),
    ...(base.id === undefined ? {} : { id: base.id }),
    additional_kwargs: kwargs,
  });
}
