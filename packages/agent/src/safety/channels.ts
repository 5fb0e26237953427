/** Channels in which others than the user speak: whoever comments there writes to the agent. */
const UNTRUSTED: ReadonlySet<unknown> = new Set(['github']);

/** May strangers have written what a run of this channel was asked (SAFE-5)? */
export const isUntrustedChannel = (channel: unknown): boolean => UNTRUSTED.has(channel);

/**
 * The options of a run as its channel lets them be. Where strangers speak, nobody is asked back, since a stranger would answer, and no agent is made or
 * changes itself.
 */
export function underChannel(options: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  if (!isUntrustedChannel(options.channel_name)) return options;
  return { ...options, disable_clarification: true, is_bootstrap: false };
}
