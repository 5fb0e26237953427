import {
  type CompactionReport,
  compactHistory,
  type ModelRegistry,
  type SummarizationSettings,
  suggestQuestions,
} from '@reindeer/agent';
import type { Surroundings } from '@reindeer/protocol';

/** Services about a conversation beside its runs. */
export interface Conversation {
  /** Can conversations be compacted? */
  readonly compacts: boolean;
  readonly suggestions: { readonly enabled: boolean; readonly most: number };
  /** Works out a compaction of a state; rejects when no summary can be made (CTX-2). */
  compact(input: {
    readonly values: Readonly<Record<string, unknown>>;
    readonly keep: number | null;
    readonly force: boolean;
    readonly modelName: string | null;
    readonly userId: string;
    readonly threadId: string;
    readonly signal: AbortSignal;
  }): Promise<{ readonly report: CompactionReport; readonly update: Record<string, unknown> | null }>;
  /** Next questions; none when they are switched off or the model fails (CTX-4). */
  suggest(input: {
    readonly messages: readonly { readonly role: string; readonly content: string }[];
    readonly count: number;
    readonly modelName: string | null;
    readonly signal: AbortSignal;
  }): Promise<readonly string[]>;
}

const COMPACTION_TIMEOUT_MS = 180_000;

export function createConversation(parts: {
  readonly models: ModelRegistry;
  readonly summarization: SummarizationSettings;
  readonly suggestions: { readonly enabled: boolean; readonly most: number; readonly model: string | null };
  readonly surroundings: Surroundings;
}): Conversation {
  const { models, summarization, suggestions, surroundings } = parts;
  const { clock, logger } = surroundings;
  return {
    compacts: summarization.enabled,
    suggestions,
    async compact({ values, keep, force, modelName, userId, threadId, signal }) {
      const chosen = await models.choose({ name: modelName, thinking: false });
      const window = chosen.entry.context_window;
      return compactHistory(values, summarization, {
        keep,
        force,
        model: modelName === null ? (summarization.model ?? chosen.model) : chosen.model,
        contextWindow: typeof window === 'number' ? window : null,
        userId,
        threadId,
        signal: AbortSignal.any([signal, AbortSignal.timeout(COMPACTION_TIMEOUT_MS)]),
        now: clock.now(),
        logger,
      });
    },
    async suggest({ messages, count, modelName, signal }) {
      if (!suggestions.enabled || messages.length === 0) return [];
      try {
        const { model } = await models.choose({ name: modelName ?? suggestions.model, thinking: false });
        return await suggestQuestions({ model, messages, count: Math.min(count, suggestions.most), signal });
      } catch (error) {
        logger.warn('No suggestions could be made', { reason: error instanceof Error ? error.name : 'unknown' });
        return [];
      }
    },
  };
}
