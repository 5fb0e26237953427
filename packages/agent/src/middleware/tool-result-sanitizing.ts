import type { ToolMessage } from '@langchain/core/messages';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { neutralTags } from '../safety/tags.ts';
import { withContent, withToolMessages } from './tool-messages.ts';

export const TOOL_RESULT_SANITIZING = 'tool-result-sanitizing';

/** Tools whose results come from strangers. */
export const REMOTE_TOOLS: readonly string[] = ['web_fetch', 'web_search', 'image_search', 'web_capture'];

/**
 * A page on the web cannot pose as the harness (MW-3): in results of tools that bring remote content, the tags of the harness's own blocks are
 * escaped. Results about local files and commands stay byte for byte. A tool of another name counts as remote when its metadata says `remote`.
 */
export function toolResultSanitizingMiddleware(tools: readonly string[] = REMOTE_TOOLS): Middleware {
  const remote = new Set(tools);
  return defineMiddleware({
    name: TOOL_RESULT_SANITIZING,
    async wrapToolCall(request, handler) {
      const result = await handler(request);
      const { metadata } = (request.tool ?? {}) as { metadata?: { remote?: unknown } };
      if (!remote.has(request.toolCall.name) && metadata?.remote !== true) return result;
      return withToolMessages(result, neutral);
    },
  });
}

function neutral(message: ToolMessage): ToolMessage {
  if (typeof message.content === 'string') {
    const text = neutralTags(message.content);
    return text === message.content ? message : withContent(message, text);
  }
  let changed = false;
  const blocks = (message.content as readonly (Record<string, unknown> | string)[]).map((block) => {
    const text = typeof block === 'string' ? block : block.text;
    if (typeof text !== 'string') return block;
    const safe = neutralTags(text);
    if (safe === text) return block;
    changed = true;
    return typeof block === 'string' ? safe : { ...block, text: safe };
  });
  return changed ? withContent(message, blocks as never) : message;
}
