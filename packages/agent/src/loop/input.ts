import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { type AttemptContext, ReindeerError, type Surroundings } from '@reindeer/protocol';
import { CHANNEL_KEY, untrustedChannelOf } from '../safety/channels.ts';
import { JUMP } from './channels.ts';
import type { Loop } from './loop.ts';
import { isHuman, messageList, withId } from './messages.ts';

/** What strangers wrote says so from now on, whoever goes on with the thread (SAFE-5). */
export function markedByChannel(messages: BaseMessage[], attempt: AttemptContext): BaseMessage[] {
  const channel = untrustedChannelOf(attempt.run.request);
  if (channel === null) return messages;
  return messages.map((message) => (isHuman(message) ? withKwargs(message, { [CHANNEL_KEY]: channel }) : message));
}

/** Name of a person's message that has none. */
const USER_NAME = 'user-input';

/**
 * Checks what a client writes into the state, before any reducer sees it: only known keys, only messages in the message
 * channel. With `attempt`, it is a run's input: the newest message of a person is stamped with the run and the time
 * (MW-4) before it is stored, so that it is stored once. Throws `validation_failed`, naming the field.
 */
export function checkedInput(
  loop: Loop,
  input: unknown,
  surroundings: Surroundings,
  attempt?: AttemptContext,
): Record<string, unknown> {
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw new ReindeerError('validation_failed', 'The input must be an object of state keys, e.g. {"messages": […]}.');
  const checked: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(input)) {
    if (!loop.publicKeys.includes(key))
      throw new ReindeerError(
        'validation_failed',
        `Unknown state key "${key}". Known keys: ${loop.publicKeys.join(', ')}.`,
        {
          detail: { field: key },
        },
      );
    if (isOverwrite(value))
      throw new ReindeerError('validation_failed', `"${key}": overwriting a channel from outside is not supported.`, {
        detail: { field: key },
      });
    checked[key] = value;
  }
  if ('messages' in checked) {
    const messages = messageList(checked.messages, 'The input').map((message) => withId(message, surroundings.random));
    checked.messages =
      attempt === undefined ? messages : markedByChannel(stamped(messages, attempt, surroundings), attempt);
  }
  // An edit from outside starts afresh: where the last run wanted to go does not matter any more.
  if (attempt === undefined) checked[JUMP] = null;
  return checked;
}

const isOverwrite = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && '__overwrite__' in value;

function stamped(messages: BaseMessage[], attempt: AttemptContext, surroundings: Surroundings): BaseMessage[] {
  const position = messages.findLastIndex((message) => isHuman(message));
  const message = messages[position];
  if (message === undefined || !isHuman(message)) return messages;
  const copy = withKwargs(message, {
    run_id: attempt.run.runId,
    timestamp: new Date(surroundings.clock.now()).toISOString(),
  });
  return messages.with(position, copy);
}

function withKwargs(message: HumanMessage, more: Readonly<Record<string, unknown>>): HumanMessage {
  return new HumanMessage({
    content: message.content,
    ...(message.id === undefined ? {} : { id: message.id }),
    name: message.name ?? USER_NAME,
    response_metadata: message.response_metadata,
    additional_kwargs: { ...message.additional_kwargs, ...more },
  });
}
