import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type BaseMessage, RemoveMessage } from '@langchain/core/messages';
import { Command, isGraphBubbleUp } from '@langchain/langgraph';
import { ReindeerError, type Surroundings } from '@reindeer/protocol';
import { isGenuineUser, isHuman } from '../loop/messages.ts';
import { defineMiddleware, type HookRuntime, type Middleware, type State } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { reportAside } from '../middleware/llm-event.ts';
import { readFailure } from '../middleware/llm-failure.ts';
import {
  COMPACTION,
  type CompactionKeep,
  type CompactionMark,
  type CompactionTrigger,
  type Cut,
  contextTokens,
  currentRequest,
  cutOf,
  lossOf,
  markOfCompaction,
  tokensOf,
} from './compaction.ts';
import { summaryNote } from './durable-context.ts';
import { type SummarySettings, summarize, type Usage } from './summary.ts';

export const SUMMARIZATION = 'summarization';

export interface SummarizationSettings extends SummarySettings {
  readonly enabled: boolean;
  /** Writes the summaries; null = the model of the run. Where it fails, the model of the run tries. */
  readonly model: BaseChatModel | null;
  /** Any one of them starts a compaction. */
  readonly triggers: readonly CompactionTrigger[];
  /** How much of the newest history stays. */
  readonly keep: CompactionKeep;
  /** Called with what is about to go, before the summary is made; its failure changes nothing. */
  beforeCompaction?(input: {
    readonly messages: readonly BaseMessage[];
    readonly userId: string;
    readonly threadId: string;
    /** Custom agent that the conversation is with; absent = the default agent. */
    readonly agentName?: string;
  }): Promise<void>;
}

export const DEFAULT_SUMMARIZATION: SummarizationSettings = {
  enabled: true,
  model: null,
  triggers: [
    { type: 'tokens', value: 100_000 },
    { type: 'fraction', value: 0.75 },
  ],
  keep: { type: 'messages', value: 20 },
  prompt: null,
  trimTokens: 24_000,
};

const SUMMARY_TIMEOUT_MS = 120_000;
/** Share of the budget that the kept messages may fill. */
const KEPT_SHARE = 0.4;
/** In the same turn a history must have grown by this share of a trigger before it is compacted again. */
const REGROWN_SHARE = 0.5;
/** A request that did not fit is tried again with a half, a quarter and an eighth of the history. */
const SMALLEST_SHARE = 8;
/** Share of the context window over which a request is not even tried. */
const FULL = 0.95;
const TRUNCATED = (count: number): string =>
  `(${count} earlier messages of this conversation were left out because they did not fit the model, and no summary of them could be made. Ask the user if something is missing.)`;

/**
 * Lets a conversation go on for ever (CTX-1). When a trigger is reached before a model call, older messages are replaced by a summary; the
 * newest ones stay, with the message of the user that is being worked on, and calls stay with their results. Summary and mark are written in
 * one checkpoint.
 *
 * At most one compaction a turn: the mark in the state says for which message of the user it was done. A turn that is long enough to fill
 * the budget once more may have another, when the history has grown by half a trigger since. So a history that cannot be made smaller is not
 * condensed over and over.
 *
 * No summary (switched off, or the model failed): the history stays as it is. Only when the request cannot fit, because the window says so or
 * because the provider does, messages go without one, and the mark says `truncated`; the request is tried again with less and the state keeps
 * what was cut. So a restart does not run into the same overflow.
 */
export function summarizationMiddleware(settings: SummarizationSettings, surroundings: Surroundings): Middleware {
  // Attempts whose summary failed: it is not tried again at every step.
  const failed = new WeakSet<AttemptScope>();
  return defineMiddleware({
    name: SUMMARIZATION,
    async beforeModel(state, runtime) {
      const scope = scopeOf(runtime);
      const window = scope.contextWindow;
      const size = sizeOf(state);
      const due = settings.enabled && !failed.has(scope) && isDue(state, size, settings.triggers, window);
      const overfull = window !== null && size.tokens > window * FULL && mayRepeat(state, size, window);
      if (!due && !overfull) return undefined;
      const cut = cutOf(state.messages, keepOf(settings, window));
      if (cut === null) return undefined;
      const summary = due ? await summaryFor(state, cut, scope, runtime) : null;
      if (summary === null && !overfull) return undefined;
      return compactionUpdate({ state, cut, summary, now: surroundings.clock.now() }, (mark) => tell(scope, mark));
    },
    async wrapModelCall(request, handler) {
      const { state, runtime } = request;
      let failure: unknown;
      try {
        return await handler(request);
      } catch (error) {
        failure = error;
      }
      const scope = scopeOf(runtime);
      const whole = state.messages.reduce((sum, message) => sum + tokensOf(message), 0);
      // The provider knows its limit best: half of what did not fit, and half of that again, as often as can be of use.
      for (let share = 2; share <= SMALLEST_SHARE; share *= 2) {
        if (!isTooLong(failure, runtime)) throw failure;
        const tokens = Math.floor(whole / share);
        const cut = cutOf(state.messages, { messages: Number.POSITIVE_INFINITY, tokens });
        if (cut === null) throw failure;
        const summary = settings.enabled && !failed.has(scope) ? await summaryFor(state, cut, scope, runtime) : null;
        const marks: CompactionMark[] = [];
        const update = compactionUpdate({ state, cut, summary, now: surroundings.clock.now() }, (mark) => {
          marks.push(mark);
        });
        const gone = new Set(cut.removed.map((message) => message.id));
        const messages = request.messages.filter((message) => message.id === undefined || !gone.has(message.id));
        try {
          await handler({ ...request, messages: [summaryNote(String(update.summary_text)), ...messages] });
        } catch (error) {
          failure = error;
          continue;
        }
        for (const mark of marks) tell(scope, mark);
        return new Command({ update });
      }
      throw failure;
    },
  });

  function isTooLong(error: unknown, runtime: HookRuntime): boolean {
    if (isGraphBubbleUp(error) || runtime.signal?.aborted === true) return false;
    return readFailure(error, surroundings.clock.now()).kind === 'too_long';
  }

  async function summaryFor(state: State, cut: Cut, scope: AttemptScope, runtime: HookRuntime): Promise<string | null> {
    const { attempt } = scope;
    const { userId, threadId } = attempt.run;
    try {
      const agentName = scope.agent?.name;
      await settings.beforeCompaction?.({
        messages: cut.removed,
        userId,
        threadId,
        ...(agentName == null ? {} : { agentName }),
      });
    } catch (error) {
      surroundings.logger.warn('What is told before a compaction failed', { reason: reasonOf(error) });
    }
    const signal = AbortSignal.any([
      AbortSignal.timeout(SUMMARY_TIMEOUT_MS),
      ...(runtime.signal === undefined ? [] : [runtime.signal]),
    ]);
    const models = [settings.model, scope.model].filter((model) => model !== null);
    for (const model of new Set(models)) {
      try {
        return await attempt.effects.track('summary', () =>
          summarize({
            model,
            previous: previousSummary(state),
            messages: cut.removed,
            current: currentRequest(state.messages),
            settings,
            signal,
            onUsage: (usage: Usage) => attempt.countUsage({ ...usage, caller: 'middleware' }),
            onFailure: reportAside(attempt, model, 'summary', surroundings.clock),
          }),
        );
      } catch (error) {
        if (runtime.signal?.aborted === true) throw error;
        surroundings.logger.warn('No summary of earlier messages could be made', { reason: reasonOf(error) });
      }
    }
    failed.add(scope);
    return null;
  }
}

const reasonOf = (error: unknown): string =>
  ReindeerError.is(error) ? error.code : error instanceof Error ? error.name : 'unknown';

const previousSummary = (state: Readonly<Record<string, unknown>>): string =>
  typeof state.summary_text === 'string' ? state.summary_text : '';

function tell(scope: AttemptScope, mark: CompactionMark): void {
  scope.attempt.emit(
    { type: 'context:compacted', how: mark.how, count: mark.count, removed_messages: mark.removedMessages },
    [],
    `compaction:${mark.count}:${mark.through}`,
  );
}

interface Size {
  readonly tokens: number;
  readonly messages: number;
}

const sizeOf = (state: State): Size => ({
  tokens: contextTokens(state.messages, markOfCompaction(state)),
  messages: state.messages.length,
});

/** Has a trigger been reached, and has the history grown enough since a compaction in the same turn? */
function isDue(state: State, size: Size, triggers: readonly CompactionTrigger[], window: number | null): boolean {
  const mark = inThisTurn(state);
  return triggers.some((trigger) => {
    const limit = limitOf(trigger, window);
    if (limit === null) return false;
    const now = trigger.type === 'messages' ? size.messages : size.tokens;
    const then = mark === null ? null : trigger.type === 'messages' ? mark.messagesAfter : mark.tokensAfter;
    return now >= limit && (then === null || now - then >= limit * REGROWN_SHARE);
  });
}

function mayRepeat(state: State, size: Size, window: number): boolean {
  const mark = inThisTurn(state);
  return mark === null || size.tokens - mark.tokensAfter >= window * REGROWN_SHARE;
}

function inThisTurn(state: State): CompactionMark | null {
  const mark = markOfCompaction(state);
  return mark !== null && mark.turn === turnOf(state) ? mark : null;
}

const turnOf = (state: Pick<State, 'messages'>): string =>
  (state.messages.findLast(isGenuineUser) ?? state.messages.findLast(isHuman))?.id ?? '';

const limitOf = (trigger: CompactionTrigger, window: number | null): number | null => {
  if (trigger.type !== 'fraction') return trigger.value;
  return window === null ? null : Math.floor(window * trigger.value);
};

/** What may stay: as configured, and within the budget, so that one compaction is enough. */
export function keepOf(
  settings: Pick<SummarizationSettings, 'keep' | 'triggers'>,
  window: number | null,
): { readonly messages: number; readonly tokens: number } {
  const limits = settings.triggers.flatMap((trigger) => {
    const limit = trigger.type === 'messages' ? null : limitOf(trigger, window);
    return limit === null ? [] : [limit];
  });
  const most = Math.min(...limits, window === null ? Number.POSITIVE_INFINITY : window * FULL) * KEPT_SHARE;
  const { type, value } = settings.keep;
  if (type === 'messages') return { messages: value, tokens: most };
  const wanted = type === 'tokens' ? value : window === null ? most : window * value;
  return { messages: Number.POSITIVE_INFINITY, tokens: Math.min(most, wanted) };
}

/** The writes of one compaction: removals, summary and mark. */
export function compactionUpdate(
  input: {
    readonly state: Readonly<Record<string, unknown>> & { readonly messages: readonly BaseMessage[] };
    readonly cut: Cut;
    /** null = truncated without one. */
    readonly summary: string | null;
    readonly now: number;
  },
  told?: (mark: CompactionMark) => void,
): { messages: RemoveMessage[]; summary_text: string } & Record<string, unknown> {
  const { state, cut, summary, now } = input;
  const before = markOfCompaction(state);
  const loss = lossOf(cut.removed);
  const removedMessages = (before?.removedMessages ?? 0) + cut.removed.length;
  const mark: CompactionMark = {
    count: (before?.count ?? 0) + 1,
    turn: turnOf({ messages: [...state.messages] }),
    through: state.messages.at(-1)?.id ?? '',
    at: new Date(now).toISOString(),
    how: summary === null ? 'truncated' : 'summary',
    removedMessages,
    removedTurns: (before?.removedTurns ?? 0) + loss.turns,
    removedTokens: (before?.removedTokens ?? 0) + loss.tokens,
    tokensAfter: cut.kept.reduce((sum, message) => sum + tokensOf(message), 0),
    messagesAfter: cut.kept.length,
  };
  told?.(mark);
  return {
    messages: cut.removed.map((message) => new RemoveMessage({ id: message.id ?? '' })),
    summary_text: summary ?? truncatedNote(previousSummary(state), cut.removed.length),
    [COMPACTION]: mark,
  };
}

/** What was known before stays, with the note that more is missing now. */
function truncatedNote(previous: string, count: number): string {
  const note = TRUNCATED(count);
  return previous === '' ? note : `${previous}\n\n${note}`;
}
