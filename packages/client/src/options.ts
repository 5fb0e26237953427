import type { JsonObject } from '@reindeer/protocol';

/** What a run may be told. Everything may be absent: the server's defaults, or those of the agent, count then. */
export interface RunOptions {
  readonly modelName?: string | undefined;
  readonly thinkingEnabled?: boolean | undefined;
  readonly reasoningEffort?: string | undefined;
  readonly subagentEnabled?: boolean | undefined;
  readonly planMode?: boolean | undefined;
  /** A custom agent. */
  readonly agentName?: string | undefined;
  /** Steps of the graph; default 100. */
  readonly recursionLimit?: number | undefined;
  /** What else `context` of the HTTP API takes. */
  readonly context?: JsonObject | undefined;
}

export const RECURSION_LIMIT = 100;

/** Options of a run over those of the client: what is given with the run wins, key by key. */
export function settle(defaults: RunOptions, overrides: RunOptions): { context: JsonObject; recursionLimit: number } {
  const given = Object.entries(overrides).filter(([, value]) => value !== undefined);
  const options: RunOptions = { ...defaults, ...Object.fromEntries(given) };
  const context: Record<string, JsonObject[string]> = {
    model_name: options.modelName,
    thinking_enabled: options.thinkingEnabled,
    reasoning_effort: options.reasoningEffort,
    subagent_enabled: options.subagentEnabled,
    is_plan_mode: options.planMode,
    agent_name: options.agentName,
    ...defaults.context,
    ...overrides.context,
  };
  return { context, recursionLimit: options.recursionLimit ?? RECURSION_LIMIT };
}
