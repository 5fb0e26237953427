import { isDictionary, listOf, textOr } from '../chat/wire.ts';

/** A custom agent, as its form shows it. null = as the default agent. */
export interface Agent {
  readonly name: string;
  readonly description: string;
  readonly model: string | null;
  readonly groups: readonly string[] | null;
  readonly skills: readonly string[] | null;
  readonly temperature: number | null;
  readonly maxTokens: number | null;
  readonly thinking: boolean | null;
  readonly effort: string | null;
  readonly soul: string;
}

/** The groups of the tools that come along. */
export const GROUPS = ['file:read', 'file:write', 'bash', 'web'] as const;
export const EFFORTS = ['low', 'medium', 'high'] as const;

export const EMPTY_AGENT: Agent = {
  name: '',
  description: '',
  model: null,
  groups: null,
  skills: null,
  temperature: null,
  maxTokens: null,
  thinking: null,
  effort: null,
  soul: '',
};

export function readAgent(value: unknown): Agent | null {
  if (!isDictionary(value)) return null;
  const name = textOr(value.name, '');
  if (name === '') return null;
  const settings = isDictionary(value.model_settings) ? value.model_settings : {};
  return {
    name,
    description: textOr(value.description, ''),
    model: textOr(value.model, null),
    groups: namesOf(value.tool_groups),
    skills: namesOf(value.skills),
    temperature: typeof settings.temperature === 'number' ? settings.temperature : null,
    maxTokens: typeof settings.max_tokens === 'number' ? settings.max_tokens : null,
    thinking: typeof value.thinking_enabled === 'boolean' ? value.thinking_enabled : null,
    effort: textOr(value.reasoning_effort, null),
    soul: textOr(value.soul, ''),
  };
}

export function readAgents(value: unknown): readonly Agent[] {
  return listOf(isDictionary(value) ? value.agents : null)
    .map(readAgent)
    .filter((agent) => agent !== null);
}

/** Everything that the form says, for a new agent and for a change; the name stands in the address or beside it. */
export function agentBody(agent: Agent): Record<string, unknown> {
  return {
    description: agent.description.trim(),
    model: agent.model,
    tool_groups: agent.groups,
    skills: agent.skills,
    model_settings:
      agent.temperature === null && agent.maxTokens === null
        ? null
        : { temperature: agent.temperature, max_tokens: agent.maxTokens },
    thinking_enabled: agent.thinking,
    reasoning_effort: agent.effort,
    soul: agent.soul,
  };
}

export const isName = (name: string): boolean => /^[A-Za-z0-9-]{1,64}$/.test(name);

/** A list with a name put in or taken out. */
export const toggled = (names: readonly string[], name: string): readonly string[] =>
  names.includes(name) ? names.filter((other) => other !== name) : [...names, name];

function namesOf(value: unknown): readonly string[] | null {
  return Array.isArray(value) ? value.filter((name) => typeof name === 'string') : null;
}
