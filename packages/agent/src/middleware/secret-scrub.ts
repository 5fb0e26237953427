import { type BaseMessage, isBaseMessage, type ToolMessage } from '@langchain/core/messages';
import { Command, isCommand } from '@langchain/langgraph';
import { isTool } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { masked } from '../tools/text.ts';
import { withContent, withToolMessages } from './tool-messages.ts';

export const SECRET_SCRUB = 'secret-scrub';
const DEPTH = 40;

/**
 * No result of any tool shows a secret of a skill (SK-8, SAFE-4): a command may print one, or leave it in a file that another tool reads, also when
 * the skill is long not active any more. What goes on from here to the model, the state and the log has a mark in its place.
 */
export function secretScrubMiddleware(): Middleware {
  return defineMiddleware({
    name: SECRET_SCRUB,
    async wrapToolCall(request, handler) {
      const { access } = scopeOf(request.runtime);
      const result = await handler(request);
      if (access === null) return result;
      // Asked afterwards: what this very call was given is known by then.
      const hidden = await access.hidden();
      return hidden.length === 0 ? result : await scrubbed(result, hidden);
    },
  });
}

async function scrubbed(result: ToolMessage | Command, hidden: readonly string[]): Promise<ToolMessage | Command> {
  const clean = await withToolMessages(result, (message) => {
    const parts = { content: message.content, artifact: message.artifact, kwargs: message.additional_kwargs };
    const safe = without(parts, hidden) as typeof parts;
    if (safe === parts) return message;
    const next = withContent(message, safe.content, safe.kwargs);
    next.artifact = safe.artifact;
    return next;
  });
  if (!isCommand(clean)) return clean;
  const { update } = clean as { update?: unknown };
  const safe = without(update, hidden);
  return safe === update ? clean : new Command({ ...(clean as object), update: safe } as never);
}

/** The value with each secret replaced, at any depth; the same object when there is none. Messages are left to their own treatment. */
function without(value: unknown, hidden: readonly string[], depth = 0): unknown {
  if (typeof value === 'string') return masked(value, hidden);
  if (typeof value !== 'object' || value === null || isOpaque(value)) return value;
  // Deeper than anything that is written by hand, and nobody looks there.
  if (depth > DEPTH) return null;
  if (Array.isArray(value)) {
    const items = value.map((item) => without(item, hidden, depth + 1));
    return items.every((item, at) => item === value[at]) ? value : items;
  }
  let changed = false;
  const entries = Object.entries(value).map(([key, item]) => {
    const safe = [masked(key, hidden), without(item, hidden, depth + 1)] as const;
    changed ||= safe[0] !== key || safe[1] !== item;
    return safe;
  });
  return changed ? Object.fromEntries(entries) : value;
}

const isOpaque = (value: object): boolean =>
  (isBaseMessage(value) && isTool(value as BaseMessage)) || ArrayBuffer.isView(value) || value instanceof Date;
