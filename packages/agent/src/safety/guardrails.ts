import type { Json } from '@reindeer/protocol';

/** What a policy is asked about a tool call, before anybody is asked and before it runs (SAFE-1). */
export interface GuardrailRequest {
  readonly toolName: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** The passport of the agent, as configured; null = none. */
  readonly agentId: string | null;
  readonly threadId: string;
  readonly userId: string;
  readonly runId: string;
  /** ISO time. */
  readonly timestamp: string;
  readonly isSubagent: boolean;
}

export interface GuardrailDecision {
  readonly allow: boolean;
  /** Codes are stable names such as `oap.tool_not_allowed`. */
  readonly reasons: readonly { readonly code: string; readonly message: string }[];
  readonly policyId?: string;
  readonly metadata?: Readonly<Record<string, Json>>;
}

/** A policy. It may be slow or fail: then `fail_closed` of the configuration decides. */
export interface GuardrailProvider {
  readonly name: string;
  decide(request: GuardrailRequest, signal: AbortSignal | undefined): Promise<GuardrailDecision>;
}

/**
 * Allows by name. `allowed` null = every tool, empty = none; what is denied is denied, allowed or not.
 */
export function allowlistProvider(lists: {
  readonly allowed: readonly string[] | null;
  readonly denied: readonly string[];
}): GuardrailProvider {
  const allowed = lists.allowed === null ? null : new Set(lists.allowed);
  const denied = new Set(lists.denied);
  return {
    name: 'allowlist',
    async decide({ toolName }) {
      if (denied.has(toolName))
        return { allow: false, reasons: [{ code: 'oap.tool_denied', message: `${toolName} is denied by policy` }] };
      if (allowed !== null && !allowed.has(toolName))
        return {
          allow: false,
          reasons: [{ code: 'oap.tool_not_allowed', message: `${toolName} is not among the allowed tools` }],
        };
      return { allow: true, reasons: [{ code: 'oap.allowed', message: '' }] };
    },
  };
}
