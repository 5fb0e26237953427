import type { AIMessage } from '@langchain/core/messages';
import type { Logger } from '@reindeer/protocol';
import { isAi, textOf } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { isStopped, stoppedMessage, withNote } from './stopping.ts';

const MODEL_LENGTH = 'model-length';
export const SAFETY_FINISH = 'safety-finish';
/** In `additional_kwargs` of an answer that the provider filtered: `{detector, reason}`. */
export const SAFETY_TERMINATION = 'safety_termination';

/** Why the provider ended the message, in its own word; '' = it did not say. */
export function finishReason(message: AIMessage): string {
  const metadata = message.response_metadata as Record<string, unknown>;
  const { stop_reason: ofKwargs } = message.additional_kwargs;
  const given = [metadata.finish_reason, metadata.stop_reason, metadata.finishReason, ofKwargs];
  const details = metadata.incomplete_details as { reason?: unknown } | null | undefined;
  const found = [...given, details?.reason].find((value) => typeof value === 'string' && value !== '');
  return typeof found === 'string' ? found : '';
}

const LENGTH: ReadonlySet<string> = new Set(['length', 'max_tokens', 'max_output_tokens']);

/** An answer that the provider cut off at its length is not hidden as a complete one (MW-33): the run says `model_length_capped`. */
export function modelLengthMiddleware(): Middleware {
  return defineMiddleware({
    name: MODEL_LENGTH,
    afterModel(state, runtime) {
      const last = state.messages.at(-1);
      if (!isAi(last) || !LENGTH.has(finishReason(last).toLowerCase())) return undefined;
      const calls = (last.tool_calls ?? []).length + (last.invalid_tool_calls ?? []).length;
      if (calls === 0 && textOf(last).trim() !== '') scopeOf(runtime).attempt.stopReason('model_length_capped');
      return undefined;
    },
  });
}

/** Tells whether a provider's filter ended a message; answers its reason, or null. */
export interface SafetyDetector {
  readonly name: string;
  detect(message: AIMessage): string | null;
}

const GEMINI = /^(SAFETY|BLOCKLIST|PROHIBITED_CONTENT|SPII|RECITATION|IMAGE_[A-Z_]+)$/;

const SAFETY_DETECTORS: readonly SafetyDetector[] = [
  { name: 'openai', detect: (message) => (finishReason(message) === 'content_filter' ? 'content_filter' : null) },
  { name: 'anthropic', detect: (message) => (finishReason(message) === 'refusal' ? 'refusal' : null) },
  { name: 'gemini', detect: (message) => (GEMINI.test(finishReason(message)) ? finishReason(message) : null) },
];

export interface SafetyFinishSettings {
  readonly enabled: boolean;
  /** Names of detectors; null = all built-in ones. */
  readonly detectors: readonly string[] | null;
  /** Of the operator's own, beside those. */
  readonly own?: readonly SafetyDetector[];
}

export const DEFAULT_SAFETY_FINISH: SafetyFinishSettings = { enabled: true, detectors: null };

const EXPLAINED =
  "[The model provider's safety filter ended this answer. Nothing of the unfinished step was carried out. Say it in another way, or choose another model.]";

/**
 * When a provider's filter ends an answer, half-finished calls do not run, and the user sees why (MW-34). Calls are taken out and the text so
 * far stays; a blank answer becomes the explanation; one with text and no calls passes. A detector that throws is skipped.
 */
export function safetyFinishMiddleware(
  settings: SafetyFinishSettings,
  logger: Logger,
  detectors: readonly SafetyDetector[] = SAFETY_DETECTORS,
): Middleware {
  const active = [
    ...detectors.filter(({ name }) => settings.detectors === null || settings.detectors.includes(name)),
    ...(settings.own ?? []),
  ];
  return defineMiddleware({
    name: SAFETY_FINISH,
    afterModel(state, runtime) {
      const last = state.messages.at(-1);
      if (!settings.enabled || !isAi(last) || isStopped(last)) return undefined;
      const found = firstMatch(active, last, logger);
      if (found === null) return undefined;
      const calls = [...(last.tool_calls ?? []), ...(last.invalid_tool_calls ?? [])];
      if (calls.length === 0 && textOf(last).trim() !== '') return undefined;
      const { attempt } = scopeOf(runtime);
      attempt.stopReason('safety_capped');
      const names = [...new Set(calls.map((call) => call.name ?? ''))];
      // Names only: arguments may hold what the filter objected to.
      attempt.emit({ type: SAFETY_TERMINATION, ...found, tools: names });
      logger.warn('A safety filter ended an answer', { ...found, calls: calls.length });
      const message = stoppedMessage(last, EXPLAINED, 'safety_capped');
      return { messages: [withNote(message, '', { [SAFETY_TERMINATION]: found })] };
    },
  });
}

function firstMatch(
  detectors: readonly SafetyDetector[],
  message: AIMessage,
  logger: Logger,
): { readonly detector: string; readonly reason: string } | null {
  for (const { name, detect } of detectors)
    try {
      const reason = detect(message);
      if (reason !== null) return { detector: name, reason };
    } catch {
      logger.warn('A safety detector failed and was skipped', { detector: name });
    }
  return null;
}
