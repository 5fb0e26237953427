import { ToolMessage } from '@langchain/core/messages';
import { SKILLS_ROOT } from '@reindeer/protocol';
import { defineMiddleware, type Middleware, type ToolCall } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { virtualPath } from '../tools/paths.ts';
import { metaOfText, TOOL_META } from '../tools/tool-meta.ts';

export const SKILL_GUARD = 'skill-guard';
/** Arguments of the tools on files that name one. */
const PATH_ARGUMENTS = ['path', 'image_path', 'filepaths'] as const;
/** Paths that one command may name; more are not looked at, since the view holds nothing that is off anyway. */
const MAX_NAMED = 50;

/**
 * A call that names a skill which is off, or which the agent has not, is refused with the reason (SK-3, SL-22). That nothing of such a skill can be reached
 * is what the view of the sandbox sees to, whatever a command is made of; here the agent learns why, and a switch that was turned in the middle of a run
 * counts although the view of now may still be an older one.
 */
export function skillGuardMiddleware(): Middleware {
  return defineMiddleware({
    name: SKILL_GUARD,
    async wrapToolCall(request, handler) {
      const { access } = scopeOf(request.runtime);
      const { toolCall } = request;
      const named = access === null ? [] : skillPaths(toolCall);
      if (access === null || named.length === 0) return handler(request);
      const verdicts = access.verdicts();
      for (const path of named) {
        const reason = await verdicts.of(path);
        if (reason === null) continue;
        return new ToolMessage({
          content: `Error: ${toolCall.name} was not run: ${reason}.`,
          tool_call_id: toolCall.id ?? '',
          name: toolCall.name,
          status: 'error',
          additional_kwargs: { [TOOL_META]: metaOfText('not permitted', 'error') },
        });
      }
      return handler(request);
    },
  });
}

/** Paths of skills that a call names. */
export function skillPaths({ name, args }: Pick<ToolCall, 'name' | 'args'>): readonly string[] {
  if (name === 'bash') {
    const command = typeof args.command === 'string' ? args.command : '';
    const found = command.match(new RegExp(`${SKILLS_ROOT}(?:/[A-Za-z0-9._-]+)+`, 'g')) ?? [];
    return [...new Set(found)].slice(0, MAX_NAMED);
  }
  return PATH_ARGUMENTS.flatMap((argument) => args[argument] ?? []).flatMap((path) => {
    if (typeof path !== 'string') return [];
    try {
      const clean = virtualPath(path);
      return clean.startsWith(`${SKILLS_ROOT}/`) ? [clean] : [];
    } catch {
      // No path of ours: the tool says so itself.
      return [];
    }
  });
}
