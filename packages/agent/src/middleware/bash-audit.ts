import { ToolMessage } from '@langchain/core/messages';
import type { Logger } from '@reindeer/protocol';
import { textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { auditCommand, type ShellVerdict } from '../safety/shell-audit.ts';
import { TOOL_META, type ToolMeta } from '../tools/tool-meta.ts';
import { withContent, withToolMessages } from './tool-messages.ts';

export const BASH_AUDIT = 'bash-audit';
const SHOWN = 200;

const BLOCKED: ToolMeta = {
  status: 'error',
  error_type: 'permission',
  recoverable_by_model: true,
  recommended_next_action: 'try_alternative',
  source: 'result',
};

/**
 * Looks at every shell command before it runs (MW-10): destructive and smuggling ones are refused, risky ones run with a notice in the result,
 * and each leaves one record in the log with its verdict, its command shortened and without values that look like secrets.
 */
export function bashAuditMiddleware(logger: Logger): Middleware {
  return defineMiddleware({
    name: BASH_AUDIT,
    async wrapToolCall(request, handler) {
      const { toolCall } = request;
      const { command } = toolCall.args;
      if (toolCall.name !== 'bash' || typeof command !== 'string') return handler(request);
      const found = auditCommand(command);
      const { run } = scopeOf(request.runtime).attempt;
      record(logger, found, command, { thread_id: run.threadId, run_id: run.runId });
      if (found.verdict === 'block')
        return new ToolMessage({
          tool_call_id: toolCall.id ?? '',
          name: toolCall.name,
          status: 'error',
          content: `Error: the command was not run, because ${found.reason} (${found.rule}). Reach the goal in another way, or ask the user.`,
          additional_kwargs: { [TOOL_META]: BLOCKED },
        });
      const result = await handler(request);
      if (found.verdict === 'pass') return result;
      return withToolMessages(result, (message) =>
        withContent(
          message,
          `${textOf(message)}\n[Notice: ${found.reason} (${found.rule}). Tell the user if it matters.]`,
        ),
      );
    },
  });
}

function record(logger: Logger, found: ShellVerdict, command: string, ids: Record<string, string>): void {
  const fields = { verdict: found.verdict, rule: found.rule, command: redacted(command), ...ids };
  if (found.verdict === 'pass') logger.debug('shell audit', fields);
  else logger.warn('shell audit', fields);
}

/** The beginning of a command without values that could be secrets. */
export function redacted(command: string): string {
  const safe = command
    .slice(0, SHOWN * 4)
    .replace(
      /([A-Za-z_]*(?:KEY|TOKEN|SECRET|PASS(?:WORD)?|CREDENTIAL)[A-Za-z_]*\s*[=:]\s*)("[^"]*"|'[^']*'|\S+)/gi,
      '$1[secret]',
    )
    .replace(/(--?(?:password|token|key|secret)[= ])(\S+)/gi, '$1[secret]')
    .replace(/\b(Bearer|Basic)\s+\S+/gi, '$1 [secret]')
    .replace(/(:\/\/[^\s/:@]{1,100}:)[^\s/@]{1,200}@/g, '$1[secret]@');
  return safe.length > SHOWN ? `${safe.slice(0, SHOWN - 1)}…` : safe;
}
