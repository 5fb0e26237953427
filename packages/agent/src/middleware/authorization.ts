import { ToolMessage } from '@langchain/core/messages';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import type { Authorization } from '../safety/authorization.ts';
import { metaOfText, TOOL_META } from '../tools/tool-meta.ts';
import { AUTHORIZATION } from './order.ts';

const MAX_LISTS = 64;

/**
 * Keeps a run to the tools of its user's role (SAFE-2, MW-9): others are not offered, so that nothing can be found by a search either (SA-11), and a call
 * of one is refused where it would run. Sub-agents and items of batches are their user's too.
 */
export function authorizationMiddleware(authorization: Authorization): Middleware {
  // One list for one list and choice: what a model is bound to is remembered by it.
  const lists = new WeakMap<readonly unknown[], Map<string, readonly unknown[]>>();
  const nameOf = (tool: unknown): string => (tool as { name?: string }).name ?? '';
  return defineMiddleware({
    name: AUTHORIZATION,
    async wrapModelCall(request, handler) {
      if (!authorization.active) return handler(request);
      const principal = authorization.principalOf(scopeOf(request.runtime).attempt.run);
      const permitted = await Promise.all(
        request.tools.map((tool) => authorization.permits(principal, 'tools', nameOf(tool))),
      );
      if (permitted.every(Boolean)) return handler(request);
      const known = lists.get(request.tools) ?? new Map<string, readonly unknown[]>();
      lists.set(request.tools, known);
      const key = permitted.map(Number).join('');
      const tools = known.get(key) ?? request.tools.filter((_, at) => permitted[at]);
      if (known.size < MAX_LISTS) known.set(key, tools);
      return handler({ ...request, tools });
    },
    async wrapToolCall(request, handler) {
      const { toolCall, runtime } = request;
      const { attempt } = scopeOf(runtime);
      const principal = authorization.principalOf(attempt.run);
      if (await authorization.permits(principal, 'tools', toolCall.name)) return handler(request);
      // Without the arguments: they may hold secrets.
      attempt.emit({ type: 'authorization:denied', tool: toolCall.name, role: principal.role });
      return new ToolMessage({
        content: `Error: ${toolCall.name} is not permitted for this user. Go on without it, or tell the user what is not allowed.`,
        tool_call_id: toolCall.id ?? '',
        name: toolCall.name,
        status: 'error',
        additional_kwargs: { [TOOL_META]: metaOfText('not permitted', 'error') },
      });
    },
  });
}
