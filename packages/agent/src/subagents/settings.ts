/** How one kind of sub-agent works. */
export interface SubagentType {
  readonly name: string;
  /** For the lead agent: when to use it. */
  readonly description: string;
  readonly systemPrompt: string;
  /** Names of tools that it may use; null = all that the lead agent has. */
  readonly tools: readonly string[] | null;
  readonly disallowedTools: readonly string[];
  /** Skills that it may load; null = those of the lead agent. */
  readonly skills: readonly string[] | null;
  /** Name of a configured model; null = the model of the run that delegates. */
  readonly model: string | null;
  /** Most model calls. */
  readonly maxTurns: number;
  readonly timeoutMs: number;
  readonly tokenBudget: TokenBudget | null;
  /** Only useful where commands can run. */
  readonly needsExecution: boolean;
}

export interface TokenBudget {
  /** Tokens of all its model calls together, input and output. */
  readonly maxTokens: number;
  /** Share of `maxTokens` from which on the model is told to finish, 0 … 1. */
  readonly warnAt: number;
}

/** What an operator may change about a type, by name. */
export interface SubagentOverride {
  readonly maxTurns?: number;
  readonly timeoutMs?: number;
  readonly model?: string | null;
  readonly skills?: readonly string[] | null;
  readonly tokenBudget?: TokenBudget | null;
}

export interface CustomSubagent extends SubagentOverride {
  readonly description: string;
  readonly systemPrompt: string;
  readonly tools?: readonly string[] | null;
  readonly disallowedTools?: readonly string[];
}

/** Limits of the one queue that all sub-agents of a process pass. */
export interface CapacityLimits {
  /** Sub-agents at work at once, 1 … 64. */
  readonly maxRunning: number;
  readonly maxQueued: number;
  /** `reject`: without a free slot a sub-agent is refused at once. */
  readonly policy: 'queue' | 'reject';
  readonly queueTimeoutMs: number;
}

export interface SubagentSettings {
  readonly capacity: CapacityLimits;
  /** Default of a run's `max_total_subagents`, 1 … 50. */
  readonly maxTotalPerRun: number;
  /** Default of a run's `max_concurrent_subagents`, 1 … 4. */
  readonly maxConcurrentPerTurn: number;
  /** For the built-in types; null = their own. */
  readonly timeoutMs: number | null;
  readonly maxTurns: number | null;
  readonly tokenBudget: TokenBudget | null;
  readonly overrides: Readonly<Record<string, SubagentOverride>>;
  readonly custom: Readonly<Record<string, CustomSubagent>>;
  /** How long a sub-agent that ran out of time is waited for before its answer is given without it. */
  readonly endGraceMs: number;
}

const DEFAULT_CAPACITY: CapacityLimits = {
  maxRunning: 3,
  maxQueued: 64,
  policy: 'queue',
  queueTimeoutMs: 300_000,
};

export const DEFAULT_SUBAGENTS: SubagentSettings = {
  capacity: DEFAULT_CAPACITY,
  maxTotalPerRun: 6,
  maxConcurrentPerTurn: 3,
  timeoutMs: null,
  maxTurns: null,
  tokenBudget: { maxTokens: 2_000_000, warnAt: 0.7 },
  overrides: {},
  custom: {},
  endGraceMs: 10_000,
};

export const TASK_TOOL = 'task';

/** A whole number within bounds; anything that is no number is the default (SA-21). */
export function clamped(value: unknown, low: number, high: number, otherwise: number): number {
  const number = typeof value === 'number' && Number.isFinite(value) ? Math.floor(value) : otherwise;
  return Math.min(high, Math.max(low, number));
}

/** What one run may delegate: its own options within the fixed bounds, else the settings. */
export function runLimits(
  options: Readonly<Record<string, unknown>>,
  settings: SubagentSettings,
): { readonly concurrent: number; readonly total: number } {
  return {
    concurrent: clamped(options.max_concurrent_subagents, 1, 4, settings.maxConcurrentPerTurn),
    total: clamped(options.max_total_subagents, 1, 50, settings.maxTotalPerRun),
  };
}
