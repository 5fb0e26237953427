import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { isGraphBubbleUp } from '@langchain/langgraph';
import { type AttemptContext, type Clock, ReindeerError } from '@reindeer/protocol';
import { modelName } from '../loop/call-model.ts';
import { type Failure, readFailure } from './llm-failure.ts';

/** Type of the event that a failed model call leaves in the log of its run. */
export const LLM_ERROR = 'llm_error';

export interface FailedCall {
  readonly model: BaseChatModel;
  readonly failure: Failure;
  /** 1 = the first try of this call. */
  readonly attempt: number;
  readonly retried: boolean;
  /** What the call was for: `answer`, or the question beside the work. */
  readonly purpose: string;
}

/**
 * Leaves a failed call in the log of the run: which model, what kind of failure, and whether it is tried again. What the provider said stays
 * out: it may quote a key, an address or the request, and a fact stays for ever.
 */
export function reportFailure(run: AttemptContext, { model, failure, attempt, retried, purpose }: FailedCall): void {
  run.emit({
    type: LLM_ERROR,
    provider: providerName(model),
    model: modelName(model),
    kind: failure.kind,
    status: failure.status,
    code: failure.unreachable,
    attempt,
    retried,
    purpose,
  });
}

/** The same for a question beside the work, which is asked once. */
export const reportAside =
  (run: AttemptContext, model: BaseChatModel, purpose: string, clock: Clock) =>
  (error: unknown): void => {
    if (isNoFailure(error)) return;
    reportFailure(run, { model, failure: readFailure(error, clock.now()), attempt: 1, retried: false, purpose });
  };

/** What is no failure of the provider: stopping, asking a person, losing the run, or a mistake in the set-up of the agent. */
export function isNoFailure(error: unknown): boolean {
  if (isGraphBubbleUp(error)) return true;
  return (
    ReindeerError.is(error) &&
    ['fenced', 'aborted', 'configuration', 'internal', 'store_unavailable'].includes(error.code)
  );
}

/** The kind of client that the model is; one that was wrapped may not tell. */
const providerName = (model: BaseChatModel): string =>
  typeof (model as { _llmType?: unknown })._llmType === 'function' ? model._llmType() : 'unknown';
