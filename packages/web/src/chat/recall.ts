import type { ChatMessage } from './message.ts';

/** What the user has written in this chat, the newest last, each text once in a row. */
export function saidBefore(messages: readonly ChatMessage[]): readonly string[] {
  const said = messages.flatMap((message) =>
    message.kind === 'human' && !message.hidden && message.text !== '' ? [message.text] : [],
  );
  return said.filter((text, index) => text !== said[index + 1]);
}

/**
 * Up and down lead through what was written before, as in a shell: from an empty field, and on from a text that came up this way and was not
 * changed.
 *
 * @param place of the text that came up last
 * @returns the place of the one that comes up now, behind the newest for an empty field; null = the key is none of this
 */
export function recalled(said: readonly string[], place: number, text: string, key: string): number | null {
  const at = text === '' ? said.length : text === said[place] ? place : null;
  if (at === null) return null;
  if (key === 'ArrowUp') return at === 0 ? null : at - 1;
  return key === 'ArrowDown' && at < said.length ? at + 1 : null;
}
