import type { BaseMessage } from '@langchain/core/messages';
export interface HistoryLimits {
  readonly maxCharacters: number;
}
export function canonicalise(messages: readonly BaseMessage[], _limits: HistoryLimits): readonly BaseMessage[] {
  return messages;
}
