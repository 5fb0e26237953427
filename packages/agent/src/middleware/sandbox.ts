import { ToolMessage } from '@langchain/core/messages';
import { Command } from '@langchain/langgraph';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';

export const SANDBOX = 'sandbox';

/**
 * Notes the thread's sandbox in the state when a tool first uses it, and gives it back after the agent (MW-6). The
 * acquisition itself is lazy, in the attempt's scope; a run that ends in another way gives it back too.
 */
export function sandboxMiddleware(): Middleware {
  return defineMiddleware({
    name: SANDBOX,
    async wrapToolCall(request, handler) {
      const result = await handler(request);
      const id = scopeOf(request.runtime).sandboxId;
      const known = (request.state.sandbox as { sandbox_id?: string } | undefined)?.sandbox_id;
      if (id === null || id === known) return result;
      const sandbox = { sandbox_id: id };
      if (ToolMessage.isInstance(result)) return new Command({ update: { messages: [result], sandbox } });
      const command = result as unknown as { update?: Record<string, unknown> };
      // An update that is no mapping is left as it is: the id is noted by the next call (SL-24).
      if (Array.isArray(command.update)) return result;
      return new Command({ ...(command as object), update: { ...command.update, sandbox } } as never);
    },
    async afterAgent(_state, runtime) {
      await scopeOf(runtime).release();
      return undefined;
    },
  });
}
