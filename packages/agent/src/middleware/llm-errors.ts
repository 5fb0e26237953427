import { AIMessage } from '@langchain/core/messages';
import { ReindeerError, type Surroundings } from '@reindeer/protocol';
import { modelName } from '../loop/call-model.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import {
  type CallEnd,
  CircuitBreaker,
  type CircuitBreakerSettings,
  DEFAULT_CIRCUIT_BREAKER,
} from './circuit-breaker.ts';
import { isNoFailure, reportFailure } from './llm-event.ts';
import { type Failure, readFailure } from './llm-failure.ts';

export const LLM_ERRORS = 'llm-errors';
/** Marks a message that stands in for the model's answer. */
export const ERROR_FALLBACK = 'reindeer_error_fallback';

export interface LlmCallSettings {
  /** Tries in all, the first one included. */
  readonly retryMaxAttempts: number;
  readonly retryBaseDelayMs: number;
  readonly retryCapDelayMs: number;
  /** Base for a provider that complains about a burst of calls. */
  readonly burstRetryBaseDelayMs: number;
  /** Longest wait that a provider may ask for; a longer one is the final failure. */
  readonly retryAfterLimitMs: number;
  readonly circuitBreaker: CircuitBreakerSettings;
}

export const DEFAULT_LLM_CALL: LlmCallSettings = {
  retryMaxAttempts: 3,
  retryBaseDelayMs: 1_000,
  retryCapDelayMs: 8_000,
  burstRetryBaseDelayMs: 5_000,
  retryAfterLimitMs: 600_000,
  circuitBreaker: DEFAULT_CIRCUIT_BREAKER,
};

/** Models whose circuits are remembered at once; the one that was used longest ago is forgotten. */
const MAX_CIRCUITS = 64;

const SHORT_ATTEMPTS = 2;

/**
 * Retries a model call that failed for a passing reason, and turns the final failure into a readable message of the
 * assistant (MW-8). Each failed try stays in the log of the run as `llm_error`. A wait that the provider asked for is kept exactly; else waits are spread with decorrelated jitter. Every
 * wait is announced as `llm_retry` and ends at once when the run is stopped.
 */
export function llmErrorsMiddleware(settings: LlmCallSettings, surroundings: Surroundings): Middleware {
  const { clock, random, logger } = surroundings;
  const circuits = new Map<string, CircuitBreaker>();
  const circuitOf = (name: string): CircuitBreaker => {
    const circuit = circuits.get(name) ?? new CircuitBreaker(settings.circuitBreaker, clock);
    circuits.delete(name);
    circuits.set(name, circuit);
    for (const old of circuits.keys()) if (circuits.size > MAX_CIRCUITS) circuits.delete(old);
    return circuit;
  };
  return defineMiddleware({
    name: LLM_ERRORS,
    async wrapModelCall(request, handler) {
      const { attempt: run } = scopeOf(request.runtime);
      const signal = request.runtime.signal;
      const name = modelName(request.model);
      const circuit = circuitOf(name);
      let wait = 0;
      for (let attempt = 1; ; attempt++) {
        const pass = circuit.enter();
        if (pass === null) {
          const open = openCircuit(circuit.remainingMs());
          reportFailure(run, { model: request.model, failure: open, attempt, retried: false, purpose: 'answer' });
          run.fail(textFor(open, name));
          return fallback(open, name, new ReindeerError('over_capacity', 'The circuit is open.'));
        }
        let end: CallEnd = 'neutral';
        try {
          const message = await handler(request);
          end = 'success';
          return message;
        } catch (error) {
          if (signal?.aborted === true || isNoFailure(error)) throw error;
          const failure = readFailure(error, clock.now());
          end = COUNTED.has(failure.kind) ? 'failure' : 'neutral';
          // Before the wait: others must learn of it now.
          if (end === 'failure') circuit.ended(pass, end);
          const most = attemptsFor(failure, settings);
          wait = nextWait(failure, wait, settings, random.next());
          const last = !failure.retryable || attempt >= most || wait > settings.retryAfterLimitMs;
          logger.warn('A model call failed', { kind: failure.kind, attempt, final: last });
          reportFailure(run, { model: request.model, failure, attempt, retried: !last, purpose: 'answer' });
          if (last) {
            run.fail(textFor(failure, name));
            return fallback(failure, name, error);
          }
          run.emit({
            type: 'llm_retry',
            attempt,
            max_attempts: most,
            wait_ms: wait,
            reason: failure.kind,
            message: `The model did not answer (${failure.kind}). Trying again in ${Math.ceil(wait / 1_000)} s (${attempt + 1} of ${most}).`,
          });
          await clock.sleep(wait, signal);
        } finally {
          // Once per call, also when it was stopped or asks a person: nobody holds the probe for ever.
          if (end !== 'failure') circuit.ended(pass, end);
        }
      }
    },
  });
}

/** Failures that tell that the provider is down. A burst limit, a wrong key or a wrong request does not. */
const COUNTED: ReadonlySet<Failure['kind']> = new Set(['transient', 'busy', 'stream_timeout']);

const openCircuit = (remainingMs: number): Failure => ({
  kind: 'circuit_open',
  retryable: false,
  retryAfterMs: remainingMs,
  status: null,
  unreachable: null,
  detail: `no call for ${Math.ceil(remainingMs / 1_000)} s`,
});

function attemptsFor(failure: Failure, settings: LlmCallSettings): number {
  const short = failure.kind === 'burst' || failure.kind === 'stream_timeout';
  return short ? Math.min(SHORT_ATTEMPTS, settings.retryMaxAttempts) : settings.retryMaxAttempts;
}

function nextWait(failure: Failure, before: number, settings: LlmCallSettings, chance: number): number {
  if (failure.retryAfterMs !== null) return failure.retryAfterMs;
  const base = failure.kind === 'burst' ? settings.burstRetryBaseDelayMs : settings.retryBaseDelayMs;
  const cap = Math.max(base, settings.retryCapDelayMs);
  const spread = Math.max(base, before * 3);
  return Math.round(Math.min(cap, base + chance * (spread - base)));
}

function fallback(failure: Failure, model: string, error: unknown): AIMessage {
  return new AIMessage({
    content: textFor(failure, model),
    additional_kwargs: {
      [ERROR_FALLBACK]: true,
      error_type: error instanceof Error ? error.name : typeof error,
      error_reason: failure.kind,
      error_detail: failure.detail,
    },
  });
}

/** @param model as the provider knows it: with several models in the configuration it tells which entry is meant */
function textFor(failure: Failure, model: string): string {
  switch (failure.kind) {
    case 'quota':
      return 'The model provider refuses the call because the quota or credit of this account is used up. Check the billing of the provider, or choose another model.';
    case 'auth':
      return `The model provider does not accept the configured key for the model ${model}. Check api_key of that model in config.yaml (or the environment variable with the key) and the rights of the key, then try again.`;
    case 'burst':
      return 'The model provider is limiting how fast calls may grow. Wait a minute, then try again.';
    case 'stream_timeout':
      return 'The model stopped sending its answer half way. Ask for a smaller output, e.g. in several steps, and try again.';
    case 'circuit_open':
      return `The model provider failed several times in a row and is left alone for ${Math.max(1, Math.ceil((failure.retryAfterMs ?? 0) / 1_000))} s. Try again then, or choose another model.`;
    case 'too_long':
      return 'This conversation has become too long for the model. Start a new conversation, or choose a model with a larger context.';
    case 'transient':
    case 'busy':
      if (failure.unreachable !== null)
        return `The model provider of ${model} could not be reached (${failure.unreachable}). Check base_url of that model and the network, then try again.`;
      return failure.retryAfterMs !== null && failure.retryAfterMs > 60_000
        ? `The model provider asks to wait ${Math.ceil(failure.retryAfterMs / 60_000)} minutes. Try again then, or choose another model.`
        : 'The model provider could not be reached or is too busy, also after several tries. Try again in a moment.';
    case 'other':
      return `The model provider refused the request${failure.detail === '' ? '' : `: ${failure.detail}`}${failure.status === 404 ? ` (Is there a model ${model} at its base_url?)` : ''}`;
  }
}
