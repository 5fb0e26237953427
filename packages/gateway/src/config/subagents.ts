import {
  type CustomSubagent,
  DEFAULT_SUBAGENTS,
  type SubagentOverride,
  type SubagentSettings,
  type TokenBudget,
} from '@reindeer/agent';
import { INHERIT } from './models.ts';
import { defined, milliseconds } from './readers.ts';
import type { ConfigFile } from './schema.ts';

type Section = NonNullable<ConfigFile['subagents']>;
type Keys = NonNullable<Section['agents']>[string];

/** The settings of sub-agents; what the file leaves out has its default. */
export function subagentsOf(section: Section = {}): SubagentSettings {
  const { capacity, tokenBudget: defaultBudget } = DEFAULT_SUBAGENTS;
  return {
    ...DEFAULT_SUBAGENTS,
    capacity: {
      maxRunning: section.max_running ?? capacity.maxRunning,
      maxQueued: section.max_queued ?? capacity.maxQueued,
      policy: section.admission_policy ?? capacity.policy,
      queueTimeoutMs: milliseconds(section.queue_timeout_seconds, capacity.queueTimeoutMs),
    },
    maxTotalPerRun: section.max_total_per_run ?? DEFAULT_SUBAGENTS.maxTotalPerRun,
    timeoutMs: milliseconds(section.timeout_seconds, null),
    maxTurns: section.max_turns ?? null,
    tokenBudget: budgetOf(section.token_budget, defaultBudget),
    overrides: mapped(section.agents, (keys) => overrideOf(keys, defaultBudget)),
    custom: mapped(
      section.custom_agents,
      (keys): CustomSubagent => ({
        ...overrideOf(keys, defaultBudget),
        description: keys.description,
        systemPrompt: keys.system_prompt,
        tools: keys.tools ?? null,
        disallowedTools: keys.disallowed_tools ?? [],
      }),
    ),
  };
}

const mapped = <From, To>(
  record: Readonly<Record<string, From>> | null | undefined,
  to: (value: From) => To,
): Record<string, To> => Object.fromEntries(Object.entries(record ?? {}).map(([name, value]) => [name, to(value)]));

function overrideOf(keys: Keys, defaultBudget: TokenBudget | null): SubagentOverride {
  return {
    ...defined('timeoutMs', milliseconds(keys.timeout_seconds, null)),
    ...defined('maxTurns', keys.max_turns),
    ...(keys.model == null ? {} : { model: keys.model === INHERIT ? null : keys.model }),
    ...defined('skills', keys.skills),
    ...(keys.token_budget == null ? {} : { tokenBudget: budgetOf(keys.token_budget, defaultBudget) }),
  };
}

function budgetOf(budget: Section['token_budget'], otherwise: TokenBudget | null): TokenBudget | null {
  if (budget == null) return otherwise;
  if (budget.enabled === false || otherwise === null) return null;
  return { maxTokens: budget.max_tokens ?? otherwise.maxTokens, warnAt: budget.warn_threshold ?? otherwise.warnAt };
}
