import type { Storage } from '../api/token.ts';
import type { ChatController } from './controller.ts';

/** What was written in a chat and not sent yet. It is kept for the tab, for each chat and for the next new one with each agent. */
export interface Draft {
  readonly text: string;
  keep(text: string): void;
}

export function draftOf(storage: Storage, chat: Pick<ChatController, 'threadId' | 'exists' | 'agent'>): Draft {
  // A new chat has another id each time that it is begun.
  const begun = chat.exists ? null : `reindeer.draft.new.${chat.agent ?? ''}`;
  const own = `reindeer.draft.${chat.threadId}`;
  return {
    text: storage.getItem(begun ?? own) ?? '',
    keep(text) {
      if (begun !== null && (text === '' || chat.exists)) storage.removeItem(begun);
      if (text === '') storage.removeItem(own);
      else storage.setItem(begun === null || chat.exists ? own : begun, text);
    },
  };
}
