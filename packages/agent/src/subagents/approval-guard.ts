import { ToolMessage } from '@langchain/core/messages';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';

const APPROVAL_GUARD = 'approval-guard';

/**
 * A tool that a person must approve is not run by a sub-agent, which cannot ask: else delegating would be a way around the question. The
 * lead agent can call the tool itself.
 */
export function approvalGuard(tools: readonly string[]): Middleware {
  return defineMiddleware({
    name: APPROVAL_GUARD,
    async wrapToolCall(request, handler) {
      const { name, id } = request.toolCall;
      const names = [...tools, ...asked(runOptions(request.runtime).interrupt_on)];
      if (!names.includes('*') && !names.includes(name)) return handler(request);
      return new ToolMessage({
        tool_call_id: id ?? '',
        name,
        status: 'error',
        content: `Error: ${name} needs the approval of a person, which a sub-agent cannot ask for. Finish without it, and say in your result which call is needed.`,
      });
    },
  });
}

function asked(value: unknown): string[] {
  if (Array.isArray(value)) return value.filter((name): name is string => typeof name === 'string');
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, on]) => (on === true ? [name] : []));
}
