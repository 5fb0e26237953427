import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { HumanMessage, type UsageMetadata } from '@langchain/core/messages';
import { modelName } from '../loop/call-model.ts';
import { textOf } from '../loop/messages.ts';

/** What one question cost; the model under the provider's name. */
export interface AskUsage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly model: string;
}

export interface AskOnce {
  /** Chosen without thinking: these are short questions beside the work. */
  readonly model: BaseChatModel;
  readonly question: string;
  /** What it is for, as traces show it: `title`, `suggestions`, … */
  readonly purpose: string;
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds; without it only the signal ends it. */
  readonly timeoutMs?: number;
  onUsage?(usage: AskUsage): void;
  /** Hears why no answer came, the end of the time among it, before this rejects. */
  onFailure?(error: unknown): void;
}

/**
 * Asks a model one question outside of the conversation and answers its text without what it thought (MOD-6). The answer is never streamed to
 * a reader and belongs to no run's callbacks; traces find it under its purpose. Rejects as the model does.
 */
export async function askOnce(ask: AskOnce): Promise<string> {
  const { model, question, purpose, timeoutMs } = ask;
  const signals = [
    ...(ask.signal === undefined ? [] : [ask.signal]),
    ...(timeoutMs === undefined ? [] : [AbortSignal.timeout(timeoutMs)]),
  ];
  const signal = signals.length === 0 ? null : AbortSignal.any(signals);
  const answer = await model
    .invoke([new HumanMessage(question.toWellFormed())], {
      runName: purpose,
      metadata: { purpose, model_name: modelName(model) },
      // Not those of the graph around it: its readers would take these words for the answer of the agent.
      callbacks: [],
      tags: ['nostream'],
      ...(signal === null ? {} : { signal }),
    })
    .catch((error: unknown) => {
      // Clients say of any abort only that there was one; the reason tells a limit from a stop.
      ask.onFailure?.(signal?.aborted === true ? signal.reason : error);
      throw error;
    });
  const usage = answer.usage_metadata as UsageMetadata | undefined;
  ask.onUsage?.({
    inputTokens: usage?.input_tokens ?? 0,
    outputTokens: usage?.output_tokens ?? 0,
    model: modelName(model),
  });
  return withoutThinking(textOf(answer)).trim();
}

/** Removes complete think blocks, and one that never ends. */
export const withoutThinking = (text: string): string => text.replace(/<think>[\s\S]*?(<\/think>|$)/g, '');
