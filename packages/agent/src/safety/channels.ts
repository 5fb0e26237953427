import type { BaseMessage } from '@langchain/core/messages';
import { isGenuineUser, isHuman } from '../loop/messages.ts';

/** Channels in which others than the user speak: whoever comments there writes to the agent. */
const UNTRUSTED: ReadonlySet<string> = new Set(['github']);

/** In a run's options, and in `additional_kwargs` of what was written in an untrusted channel. */
export const CHANNEL_KEY = 'channel_name';

/** May strangers have written what a run of this channel was asked (SAFE-5)? Programs write the names of channels as they like. */
export const isUntrustedChannel = (channel: unknown): boolean =>
  typeof channel === 'string' && UNTRUSTED.has(channel.trim().toLowerCase());

/**
 * The options of a run as its channel lets them be. Where strangers speak, nobody is asked back, since a stranger would answer, and no agent is made or
 * changes itself.
 */
export function underChannel(options: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (!isUntrustedChannel(options[CHANNEL_KEY])) return options;
  return { ...options, disable_clarification: true, is_bootstrap: false };
}

/** The channel of a run, if it is one in which strangers speak. */
export function untrustedChannelOf(request: {
  readonly config: Readonly<Record<string, unknown>>;
  readonly context: Readonly<Record<string, unknown>>;
}): string | null {
  const configurable = request.config.configurable as Readonly<Record<string, unknown>> | null | undefined;
  const channel = request.context[CHANNEL_KEY] ?? configurable?.[CHANNEL_KEY];
  return typeof channel === 'string' && isUntrustedChannel(channel) ? channel : null;
}

/**
 * A conversation without what strangers said and what they were answered: nothing is remembered of the user because somebody else wrote it, also
 * when the user goes on with the thread (SAFE-5). A turn reaches to the user's next own message.
 */
export function withoutStrangers(messages: readonly BaseMessage[]): readonly BaseMessage[] {
  let strange = false;
  return messages.filter((message) => {
    if (isHuman(message) && isUntrustedChannel(message.additional_kwargs[CHANNEL_KEY])) strange = true;
    else if (isGenuineUser(message)) strange = false;
    return !strange;
  });
}
