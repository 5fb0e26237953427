/** What can be written after a slash and is done by the page, not by the agent. A skill of such a name is not offered. */
export const COMMANDS = ['goal', 'compact', 'new', 'help'] as const;

/** Words that the server keeps for commands of other clients: never skills there. */
const RESERVED: readonly string[] = ['bootstrap', 'memory', 'models', 'status'];

export const MOST_GOAL = 4_000;
const OFFERED = 6;

export interface Offer {
  readonly name: string;
  /** null = a command of the page. */
  readonly skill: { readonly description: string } | null;
}

export type Command =
  | { readonly name: 'compact' | 'new' | 'help' }
  | { readonly name: 'goal'; readonly what: 'show' }
  | { readonly name: 'goal'; readonly what: 'clear' }
  | { readonly name: 'goal'; readonly what: 'set'; readonly objective: string };

/** The command at the beginning of a text; null = the text is for the agent, as is one that begins with the name of a skill. */
export function readCommand(text: string): Command | null {
  const found = /^\/([a-z]+)(?:\s+([\s\S]*))?$/.exec(text.trim());
  const name = COMMANDS.find((command) => command === found?.[1]);
  const rest = (found?.[2] ?? '').trim();
  if (name === undefined) return null;
  if (name === 'goal') {
    if (rest === '') return { name, what: 'show' };
    return rest === 'clear' ? { name, what: 'clear' } : { name, what: 'set', objective: rest };
  }
  // "/new york" is something that somebody says.
  return rest === '' ? { name } : null;
}

/** What is being written after a slash at the very beginning, as long as it can still become a name; null = nothing of that kind. */
export function begunCommand(text: string): string | null {
  return /^\/([a-z0-9-]*)$/.exec(text)?.[1] ?? null;
}

/** The commands and skills whose names begin so; a part of a name counts as well, but comes later. */
export function offers(
  begun: string,
  skills: readonly { readonly name: string; readonly description: string; readonly enabled: boolean }[],
): readonly Offer[] {
  const all: readonly Offer[] = [
    ...COMMANDS.map((name) => ({ name, skill: null })),
    ...callable(skills).map(({ name, description }) => ({ name, skill: { description } })),
  ];
  return [
    ...all.filter(({ name }) => name.startsWith(begun)),
    ...all.filter(({ name }) => !name.startsWith(begun) && name.includes(begun)),
  ].slice(0, OFFERED);
}

/** The skills that a person can call by name. */
export function callable<Named extends { readonly name: string; readonly enabled: boolean }>(
  skills: readonly Named[],
): readonly Named[] {
  return skills.filter(
    ({ name, enabled }) => enabled && !RESERVED.includes(name) && !COMMANDS.some((command) => command === name),
  );
}
