import { createHash } from 'node:crypto';
import { AIMessage, type BaseMessage } from '@langchain/core/messages';
import type { Logger } from '@reindeer/protocol';
import { hiddenNote, isGenuineUser, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { ORIGINAL_CONTENT } from '../middleware/input-sanitizing.ts';
import { SKILL_ACTIVATION } from '../middleware/order.ts';
import { escapedText } from '../safety/tags.ts';
import type { Skill } from './library.ts';

/** Words after a slash that are commands of the harness or the page, never skills (SK-7). */
const RESERVED_COMMANDS: readonly string[] = ['bootstrap', 'goal', 'help', 'memory', 'models', 'new', 'status'];

export interface SkillCommand {
  readonly name: string;
  /** What the skill is to be used for; '' = nothing was said. */
  readonly task: string;
  /** The message that gave the command. */
  readonly message: BaseMessage;
}

/** The command at the beginning of a text, such as `/chart the numbers of May`. */
export function parseSkillCommand(text: string): { readonly name: string; readonly task: string } | null {
  const found = /^\/([a-z0-9]+(?:-[a-z0-9]+)*)(?:\s+|$)/.exec(text);
  const name = found?.[1];
  if (found === null || name === undefined || RESERVED_COMMANDS.includes(name)) return null;
  return { name, task: text.slice(found[0].length).trim() };
}

/** The command of the newest message that a person wrote; null when it is none. */
export function skillCommand(state: State): SkillCommand | null {
  const message = state.messages.findLast(isGenuineUser);
  if (message === undefined) return null;
  const original = message.additional_kwargs[ORIGINAL_CONTENT];
  const command = parseSkillCommand((typeof original === 'string' ? original : textOf(message)).trimStart());
  return command === null ? null : { ...command, message };
}

/**
 * `/skill-name do something` (SK-7): the skill's instructions stand behind the command in each request of the run, so that the model need not
 * decide to read them. Nothing of that is stored. A skill that cannot be used ends the turn with an answer that says why.
 */
export function skillActivationMiddleware(logger: Logger): Middleware {
  return defineMiddleware({
    name: SKILL_ACTIVATION,
    beforeAgent: {
      canJumpTo: ['end'],
      hook(state, runtime) {
        const command = skillCommand(state);
        if (command === null) return undefined;
        const { skills, attempt } = scopeOf(runtime);
        const refusal = refusalOf(command.name, skills);
        if (refusal === null) {
          logger.info('A skill was called', { runId: attempt.run.runId, skill: command.name });
          return undefined;
        }
        return {
          messages: [new AIMessage({ id: `skill:${command.message.id ?? attempt.run.runId}`, content: refusal })],
          jumpTo: 'end',
        };
      },
    },
    wrapModelCall(request, handler) {
      const command = skillCommand(request.state);
      const skill = command === null ? null : usable(command.name, scopeOf(request.runtime).skills);
      if (command === null || skill === null) return handler(request);
      const at = request.messages.findLastIndex((message) => message.id === command.message.id);
      // Compacted away or not: the newest message of a person is always in the request.
      const place = at === -1 ? request.messages.length : at + 1;
      const messages = [
        ...request.messages.slice(0, place),
        noteOf(skill, command.task),
        ...request.messages.slice(place),
      ];
      return handler({ ...request, messages });
    },
  });
}

function noteOf(skill: Skill, task: string): BaseMessage {
  const digest = createHash('sha256').update(skill.text).digest('hex');
  return hiddenNote(`<slash_skill_activation>
The user called the skill "${skill.name}". Its instructions follow; they hold for this task. Its folder is ${escapedText(skill.location)}, and paths in it are relative to that.
<skill name="${skill.name}" path="${escapedText(`${skill.location}/SKILL.md`)}" sha256="${digest}">
${escapedText(skill.body)}
</skill>
Task: ${task === '' ? 'none was given; find out from the conversation, or ask.' : escapedText(task)}
</slash_skill_activation>`);
}

const usable = (name: string, skills: readonly Skill[] | null): Skill | null =>
  skills?.find((skill) => skill.name === name && skill.enabled) ?? null;

function refusalOf(name: string, skills: readonly Skill[] | null): string | null {
  if (skills === null)
    return `The skill "${name}" could not be loaded: the skills cannot be read right now. Try again later.`;
  const skill = skills.find((one) => one.name === name);
  if (skill === undefined) {
    const names = skills.filter((one) => one.enabled).map((one) => `/${one.name}`);
    return `There is no skill "${name}".${names.length === 0 ? '' : ` You can call: ${names.slice(0, 50).join(', ')}.`}`;
  }
  return skill.enabled
    ? null
    : `The skill "${name}" is switched off. Switch it on in the settings, then call it again.`;
}
