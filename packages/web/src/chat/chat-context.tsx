import { createContext, useContext, useSyncExternalStore } from 'react';
import type { Api } from '../api/api.ts';
import type { Rest } from '../api/rest.ts';
import type { ChatController } from './controller.ts';
import type { ChatState } from './state.ts';
import type { TurnFacts } from './turn-facts.ts';

/** What the cards of a chat need beside their own call. */
export interface ChatParts {
  readonly api: Api;
  readonly rest: Rest;
  readonly controller: ChatController;
  readonly facts: TurnFacts;
}

const Chat = createContext<ChatParts | null>(null);
export const ChatProvider = Chat.Provider;

export function useChat(): ChatParts {
  const parts = useContext(Chat);
  if (parts === null) throw new Error('A card of a chat stands outside of one.');
  return parts;
}

/** A part of the chat's state; whoever reads it is drawn again when that part changes. */
export function useChatState<Part>(select: (state: ChatState) => Part): Part {
  const { controller } = useChat();
  return useSyncExternalStore(controller.subscribe, () => select(controller.snapshot()));
}
