import { hiddenNote, isAi } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { stoppedMessage } from './stopping.ts';

export const TOKEN_BUDGET = 'token-budget';

export interface TokenBudgetSettings {
  readonly enabled: boolean;
  /** Tokens of one run, input and output of all its model calls together, those of sub-agents included. */
  readonly maxTokens: number;
  readonly maxInputTokens: number | null;
  readonly maxOutputTokens: number | null;
  /** Share of a limit from which on the model is told to finish, and at which the turn ends. */
  readonly warnThreshold: number;
  readonly hardStopThreshold: number;
}

export const DEFAULT_TOKEN_BUDGET: TokenBudgetSettings = {
  enabled: false,
  maxTokens: 200_000,
  maxInputTokens: null,
  maxOutputTokens: null,
  warnThreshold: 0.8,
  hardStopThreshold: 1,
};

/**
 * Caps what one run spends (MW-29). The counters are the run's own: what earlier attempts and the run's sub-agents used counts, what earlier
 * runs of the thread used does not. Near the limit the model is told once; at the limit open calls are taken out and the turn ends with what
 * the model has said, `token_capped`.
 */
export function tokenBudgetMiddleware(settings: TokenBudgetSettings): Middleware {
  const warned = new WeakSet<AttemptScope>();
  return defineMiddleware({
    name: TOKEN_BUDGET,
    wrapModelCall(request, handler) {
      if (!settings.enabled) return handler(request);
      const scope = scopeOf(request.runtime);
      const most = mostUsed(scope, settings);
      if (most === null || most.share < settings.warnThreshold || warned.has(scope)) return handler(request);
      warned.add(scope);
      const percent = Math.min(100, Math.round(100 * most.share));
      const note = `${percent} % of this run's budget of ${most.limit} ${most.what} is used. Finish now: give the user what you have, and say what is open.`;
      return handler({ ...request, messages: [...request.messages, hiddenNote(note, 'budget_warning')] });
    },
    afterModel(state, runtime) {
      const last = state.messages.at(-1);
      if (!settings.enabled || !isAi(last)) return undefined;
      const calls = (last.tool_calls ?? []).length + (last.invalid_tool_calls ?? []).length;
      if (calls === 0) return undefined;
      const scope = scopeOf(runtime);
      const most = mostUsed(scope, settings);
      if (most === null || most.share < settings.hardStopThreshold) return undefined;
      scope.attempt.stopReason('token_capped');
      const note = `[Stopped: this run has used its budget of ${most.limit} ${most.what}. Send another message to go on.]`;
      return { messages: [stoppedMessage(last, note, 'token_capped')] };
    },
  });
}

/** The limit that is nearest. */
function mostUsed(
  scope: AttemptScope,
  settings: TokenBudgetSettings,
): { readonly share: number; readonly limit: number; readonly what: string } | null {
  const { inputTokens, outputTokens, totalTokens } = scope.attempt.usage();
  const limits = [
    { used: totalTokens, limit: settings.maxTokens, what: 'tokens' },
    { used: inputTokens, limit: settings.maxInputTokens, what: 'input tokens' },
    { used: outputTokens, limit: settings.maxOutputTokens, what: 'output tokens' },
  ];
  const shares = limits.flatMap(({ used, limit, what }) =>
    limit === null ? [] : [{ share: used / limit, limit, what }],
  );
  return shares.reduce<(typeof shares)[number] | null>(
    (most, item) => (most === null || item.share > most.share ? item : most),
    null,
  );
}
