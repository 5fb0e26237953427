import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import type { BaseMessage } from '@langchain/core/messages';
import type { Logger } from '@reindeer/protocol';
import { contextTokens, currentRequest, cutOf, markOfCompaction, tokensOf } from './compaction.ts';
import { compactionUpdate, keepOf, type SummarizationSettings } from './summarization.ts';
import { summarize } from './summary.ts';

export interface CompactionRequest {
  /** Messages to keep; null = as configured. */
  readonly keep: number | null;
  /** False: only when the history is large enough to need it. */
  readonly force: boolean;
  readonly model: BaseChatModel;
  readonly contextWindow: number | null;
  readonly userId: string;
  readonly threadId: string;
  readonly signal: AbortSignal | undefined;
  readonly now: number;
  readonly logger: Logger;
}

export interface CompactionReport {
  readonly compacted: boolean;
  readonly reason: 'nothing_to_compact' | 'below_threshold' | 'empty' | null;
  readonly removed_message_count: number;
  readonly preserved_message_count: number;
  readonly summary_updated: boolean;
  /** Estimate of the history afterwards. */
  readonly total_tokens: number;
}

/**
 * Compacts a thread that no run works on (CTX-2). Answers the report and, when something is to be done, the update of the state. Rejects when
 * no summary could be made: a history that nobody summarised is never thrown away on request.
 */
export async function compactHistory(
  state: Readonly<Record<string, unknown>>,
  settings: SummarizationSettings,
  request: CompactionRequest,
): Promise<{ readonly report: CompactionReport; readonly update: Record<string, unknown> | null }> {
  const messages = Array.isArray(state.messages) ? (state.messages as BaseMessage[]) : [];
  const size = contextTokens(messages, markOfCompaction(state));
  const nothing = (reason: NonNullable<CompactionReport['reason']>) => ({
    report: {
      compacted: false,
      reason,
      removed_message_count: 0,
      preserved_message_count: messages.length,
      summary_updated: false,
      total_tokens: size,
    },
    update: null,
  });
  if (messages.length === 0) return nothing('empty');
  const due = settings.triggers.some(({ type, value }) => {
    if (type === 'messages') return messages.length >= value;
    const limit = type === 'tokens' ? value : request.contextWindow === null ? null : request.contextWindow * value;
    return limit !== null && size >= limit;
  });
  if (!request.force && !due) return nothing('below_threshold');
  const configured = keepOf(settings, request.contextWindow);
  const cut = cutOf(messages, request.keep === null ? configured : { ...configured, messages: request.keep });
  if (cut === null) return nothing('nothing_to_compact');
  const { userId, threadId, logger } = request;
  try {
    await settings.beforeCompaction?.({ messages: cut.removed, userId, threadId });
  } catch (error) {
    logger.warn('What is told before a compaction failed', {
      reason: error instanceof Error ? error.name : 'unknown',
    });
  }
  const summary = await summarize({
    model: request.model,
    previous: typeof state.summary_text === 'string' ? state.summary_text : '',
    messages: cut.removed,
    current: currentRequest(messages),
    settings,
    signal: request.signal,
  });
  const update = compactionUpdate({ state: { ...state, messages }, cut, summary, now: request.now });
  return {
    report: {
      compacted: true,
      reason: null,
      removed_message_count: cut.removed.length,
      preserved_message_count: cut.kept.length,
      summary_updated: true,
      total_tokens: cut.kept.reduce((sum, message) => sum + tokensOf(message), 0),
    },
    update,
  };
}
