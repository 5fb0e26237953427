import { useCallback, useState } from 'react';
import { asTrouble } from '../api/trouble.ts';
import { usePage } from '../parts/page-context.tsx';
import { troubleText } from '../parts/trouble-text.ts';
import { NEW_CHAT } from '../route.ts';
import { type Command, MOST_GOAL } from './commands.ts';
import type { ChatController } from './controller.ts';

/** Does what was written after a slash, and says how that went. */
export function useCommands(controller: ChatController) {
  const { say, go } = usePage();
  const [notice, setNotice] = useState<string | null>(null);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [helping, setHelping] = useState(false);
  const forget = useCallback(() => {
    setNotice(null);
    setProblems([]);
  }, []);
  const closeHelp = useCallback(() => setHelping(false), []);

  /** @returns what is to be told; null = it is seen elsewhere */
  async function act(command: Command): Promise<string | null> {
    switch (command.name) {
      case 'help':
        setHelping(true);
        return null;
      case 'new':
        go(NEW_CHAT);
        return null;
      case 'compact': {
        const count = await controller.compact();
        return count === 0 ? say('commands.compacted.none') : say('commands.compacted', { count });
      }
      case 'goal':
        if (command.what === 'show') return controller.snapshot().goal?.objective ?? say('commands.goal.none');
        if (command.what === 'clear') {
          await controller.setGoal(null);
          return null;
        }
        await controller.setGoal(command.objective);
        await controller.send(command.objective, []);
        return null;
    }
  }

  /** @param context.done what was written is not needed any more */
  async function run(
    command: Command,
    context: { readonly busy: boolean; readonly done: () => unknown },
  ): Promise<void> {
    forget();
    const changes = command.name === 'compact' || (command.name === 'goal' && command.what !== 'show');
    const count = command.name === 'goal' && command.what === 'set' ? command.objective.length : 0;
    if (changes && context.busy) setProblems([say('commands.busy')]);
    else if (count > MOST_GOAL) setProblems([say('commands.goal.long', { most: MOST_GOAL, count })]);
    else {
      try {
        // A new chat takes the place of this one: nothing can be put away afterwards.
        if (command.name === 'new') context.done();
        const told = await act(command);
        context.done();
        setNotice(told);
      } catch (error) {
        setProblems([troubleText(asTrouble(error), say)]);
      }
    }
  }

  return { notice, problems, helping, run, forget, closeHelp };
}
