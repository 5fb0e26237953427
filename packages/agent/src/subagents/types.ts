import { ReindeerError } from '@reindeer/protocol';
import { CLARIFICATION_TOOL } from '../tools/ask-clarification.ts';
import { type SubagentSettings, type SubagentType, TASK_TOOL } from './settings.ts';

/** No sub-agent delegates, asks the user or hands files over: those are the lead agent's (SA-10). */
const NEVER: readonly string[] = [TASK_TOOL, CLARIFICATION_TOOL, 'present_files'];

const BUILT_IN_TIMEOUT_MS = 1_800_000;
const CUSTOM_TIMEOUT_MS = 900_000;
const CUSTOM_TURNS = 50;
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

type Body = Pick<
  SubagentType,
  'name' | 'description' | 'systemPrompt' | 'tools' | 'disallowedTools' | 'needsExecution' | 'maxTurns'
>;

const GENERAL: Body = {
  name: 'general-purpose',
  description:
    'For work of several steps that needs thought and tools: research, reading many files, writing and checking something. It has the tools of the lead agent.',
  systemPrompt:
    'Work on the one task that you are given until it is done. Plan briefly, use tools, check what you made. Your last message is all that the agent who asked will see: give the result itself, the facts behind it, the paths of files that you wrote, and what is still open. Do not ask questions back; decide sensibly and say what you assumed.',
  tools: null,
  disallowedTools: [],
  needsExecution: false,
  maxTurns: 150,
};

const BASH: Body = {
  name: 'bash',
  description:
    'For running commands whose long output should stay out of this conversation: builds, tests, installations, git, converting files.',
  systemPrompt:
    'You run commands. Run them one after the other, read what they say, and correct what fails. Your last message is all that the agent who asked will see: say what you ran, what came of it, and quote only the lines that matter.',
  tools: ['bash', 'ls', 'read_file', 'write_file', 'str_replace'],
  disallowedTools: [],
  needsExecution: true,
  maxTurns: 60,
};

/**
 * The sub-agents that there are, by name. Settings for one name win over the general ones, which count for the built-in types only.
 * A custom type of a built-in name takes its place. Throws `configuration` for a bad name or an override of an unknown type.
 */
export function subagentTypes(settings: SubagentSettings, canExecute: boolean): ReadonlyMap<string, SubagentType> {
  const types = new Map<string, SubagentType>();
  const add = (type: SubagentType): void => {
    const own = settings.overrides[type.name] ?? {};
    types.set(type.name, {
      ...type,
      maxTurns: own.maxTurns ?? type.maxTurns,
      timeoutMs: own.timeoutMs ?? type.timeoutMs,
      model: own.model === undefined ? type.model : own.model,
      skills: own.skills === undefined ? type.skills : own.skills,
      tokenBudget: own.tokenBudget === undefined ? type.tokenBudget : own.tokenBudget,
    });
  };
  for (const body of [GENERAL, BASH]) {
    add({
      ...body,
      skills: null,
      model: null,
      maxTurns: settings.maxTurns ?? body.maxTurns,
      timeoutMs: settings.timeoutMs ?? BUILT_IN_TIMEOUT_MS,
      tokenBudget: settings.tokenBudget,
    });
  }
  for (const [name, custom] of Object.entries(settings.custom)) {
    if (!NAME.test(name))
      throw new ReindeerError(
        'configuration',
        `subagents.custom_agents: "${name.slice(0, 80)}" is no usable name. Use letters, digits, "-" and "_", at most 64.`,
      );
    add({
      name,
      description: custom.description,
      systemPrompt: custom.systemPrompt,
      tools: custom.tools ?? null,
      disallowedTools: custom.disallowedTools ?? [],
      needsExecution: false,
      skills: custom.skills ?? null,
      model: custom.model ?? null,
      maxTurns: custom.maxTurns ?? CUSTOM_TURNS,
      timeoutMs: custom.timeoutMs ?? CUSTOM_TIMEOUT_MS,
      tokenBudget: custom.tokenBudget === undefined ? settings.tokenBudget : custom.tokenBudget,
    });
  }
  for (const name of Object.keys(settings.overrides))
    if (!types.has(name))
      throw new ReindeerError(
        'configuration',
        `subagents.agents: there is no sub-agent "${name.slice(0, 80)}". Known: ${[...types.keys()].join(', ')}.`,
      );
  return canExecute ? types : new Map([...types].filter(([, type]) => !type.needsExecution));
}

/** May a sub-agent of this type have this tool? */
export function mayUse(type: SubagentType, tool: string): boolean {
  if (NEVER.includes(tool) || type.disallowedTools.includes(tool)) return false;
  return type.tools === null || type.tools.includes(tool);
}
