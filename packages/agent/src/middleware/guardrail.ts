import { ToolMessage } from '@langchain/core/messages';
import type { Surroundings } from '@reindeer/protocol';
import { defineMiddleware, type Middleware, type ToolRequest } from '../loop/middleware.ts';
import { runOptions } from '../loop/run-options.ts';
import { scopeOf } from '../loop/scope.ts';
import type { GuardrailDecision, GuardrailProvider } from '../safety/guardrails.ts';
import { TOOL_META, type ToolMeta } from '../tools/tool-meta.ts';

export const GUARDRAIL = 'guardrail';

export interface GuardrailSettings {
  /** null = no policy. */
  readonly provider: GuardrailProvider | null;
  /** What a provider that fails or does not answer means: true = the call is refused. */
  readonly failClosed: boolean;
  /** Id of the agent for the policy. */
  readonly passport: string | null;
}

export const DEFAULT_GUARDRAILS: GuardrailSettings = { provider: null, failClosed: true, passport: null };

const TIMEOUT_MS = 10_000;
const DENIED: ToolMeta = {
  status: 'error',
  error_type: 'permission',
  recoverable_by_model: true,
  recommended_next_action: 'try_alternative',
  source: 'result',
};

/**
 * A deterministic verdict on every tool call, without a person (SAFE-1): asked where the call would run, so that nothing gets around it.
 * A refusal is an error result that names the tool, the reason and its code, and an event; the agent goes on.
 */
export function guardrailMiddleware(settings: GuardrailSettings, surroundings: Surroundings): Middleware {
  const { clock, logger } = surroundings;
  return defineMiddleware({
    name: GUARDRAIL,
    async wrapToolCall(request, handler) {
      const { provider } = settings;
      if (provider === null) return handler(request);
      const decision = await verdict(provider, request);
      if (decision.allow) return handler(request);
      const { attempt } = scopeOf(request.runtime);
      const [reason = { code: 'oap.denied', message: 'denied by policy' }] = decision.reasons;
      const { name, id } = request.toolCall;
      // Without the arguments: they may hold secrets.
      attempt.emit({
        type: 'guardrail:denied',
        tool: name,
        code: reason.code,
        message: reason.message,
        policy_id: decision.policyId ?? null,
      });
      logger.warn('A guardrail refused a tool call', { tool: name, code: reason.code, provider: provider.name });
      return new ToolMessage({
        tool_call_id: id ?? '',
        name,
        status: 'error',
        content: `Error: the policy of this system refused the call of ${name}: ${reason.message} (${reason.code}). Go on without it, or tell the user what is not allowed.`,
        additional_kwargs: { [TOOL_META]: DENIED },
      });
    },
  });

  async function verdict(provider: GuardrailProvider, request: ToolRequest): Promise<GuardrailDecision> {
    const { run } = scopeOf(request.runtime).attempt;
    const { signal } = request.runtime;
    const timer = new AbortController();
    const late = clock.sleep(TIMEOUT_MS, timer.signal).then(
      () => 'late' as const,
      () => 'late' as const,
    );
    const limit = new AbortController();
    try {
      const asked = provider.decide(
        {
          toolName: request.toolCall.name,
          args: request.toolCall.args,
          agentId: settings.passport,
          threadId: run.threadId,
          userId: run.userId,
          runId: run.runId,
          timestamp: new Date(clock.now()).toISOString(),
          isSubagent: runOptions(request.runtime).is_subagent === true,
        },
        signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal]),
      );
      const answer = await Promise.race([asked, late]);
      signal?.throwIfAborted();
      if (answer !== 'late') return answer;
      logger.warn('A guardrail provider did not answer in time', { provider: provider.name });
    } catch (error) {
      signal?.throwIfAborted();
      logger.warn('A guardrail provider failed', {
        provider: provider.name,
        reason: error instanceof Error ? error.name : 'unknown',
      });
    } finally {
      timer.abort();
      limit.abort();
    }
    return settings.failClosed
      ? { allow: false, reasons: [{ code: 'oap.evaluator_error', message: 'the policy could not be asked' }] }
      : { allow: true, reasons: [] };
  }
}
