import type { ChannelHost, ThreadAddress } from './host.ts';
import { TEXTS } from './texts.ts';

export interface Command {
  readonly name: string;
  readonly rest: string;
}

/** A command stands at the very beginning of a message. */
export function parseCommand(text: string): Command | null {
  const found = /^\/([A-Za-z0-9_-]{1,64})(?:\s+([\s\S]*))?$/.exec(text);
  return found === null ? null : { name: (found[1] ?? '').toLowerCase(), rest: (found[2] ?? '').trim() };
}

/** The code of `/connect <code>`; null = it is no such command. '' = a code is missing or is none. */
export function connectCode(text: string): string | null {
  const command = parseCommand(text);
  if (command?.name !== 'connect') return null;
  return /^[A-Za-z0-9_-]{16,64}$/.test(command.rest) ? command.rest : '';
}

export type CommandOutcome =
  | { readonly kind: 'reply'; readonly text: string }
  /** A run with this text. */
  | { readonly kind: 'run'; readonly text: string; readonly bootstrap: boolean };

const BOOTSTRAP = 'Help me to make an agent of my own.';

/** What a command of a connected account does. */
export async function runCommand(
  host: ChannelHost,
  userId: string,
  command: Command,
  text: string,
  conversation: {
    /** null = it has none yet. */
    thread(): Promise<string | null>;
    /** Makes it where there is none. */
    begin(): Promise<string>;
    renew(): Promise<void>;
  },
): Promise<CommandOutcome> {
  const say = (said: string): CommandOutcome => ({ kind: 'reply', text: said });
  const addressOf = (threadId: string): ThreadAddress => ({ userId, threadId });
  switch (command.name) {
    case 'start':
      return say(TEXTS.hello);
    case 'help':
      return say(TEXTS.help(await host.skills(userId)));
    case 'new':
      await conversation.renew();
      return say(TEXTS.fresh);
    case 'status': {
      const threadId = await conversation.thread();
      const thread = threadId === null ? null : await host.threads.get(addressOf(threadId));
      return say(thread === null ? TEXTS.noThread : TEXTS.thread(thread.threadId, thread.status));
    }
    case 'models':
      return say(TEXTS.models(await host.models(userId)));
    case 'memory':
      return say(TEXTS.memory(await host.memory(userId)));
    case 'bootstrap':
      return { kind: 'run', text: command.rest === '' ? BOOTSTRAP : command.rest, bootstrap: true };
    case 'goal': {
      const { rest } = command;
      if (rest === '') {
        const threadId = await conversation.thread();
        return say(TEXTS.goal(threadId === null ? null : await host.goals.read(addressOf(threadId))));
      }
      if (rest.length > host.goals.limit) return say(TEXTS.goalTooLong(host.goals.limit));
      const isClear = rest.toLowerCase() === 'clear';
      const existing = isClear ? await conversation.thread() : await conversation.begin();
      if (existing === null) return say(TEXTS.goalCleared);
      const written = await host.goals.write(addressOf(existing), isClear ? null : rest);
      if (written === 'busy') return say(TEXTS.busy);
      return isClear ? say(TEXTS.goalCleared) : { kind: 'run', text: rest, bootstrap: false };
    }
  }
  const skills = await host.skills(userId);
  if (skills.includes(command.name)) return { kind: 'run', text, bootstrap: false };
  return say(TEXTS.unknown(`/${command.name}`, TEXTS.help(skills)));
}
