import type { BaseMessage, UsageMetadata } from '@langchain/core/messages';
import { isAi, textOf } from '../loop/messages.ts';
import { ERROR_FALLBACK } from '../middleware/llm-errors.ts';
import { withoutHostDetails } from '../tools/error-text.ts';
import { isStopReason, type SubagentOutcome, type SubagentStopReason, type SubagentUsage } from './metadata.ts';

/** Marks the message with which a limit ended the work; the value is the stop reason. */
export const STOPPED_BY = 'reindeer_stopped_by';
const LONGEST_ERROR = 1_000;

/**
 * How a sub-agent ended, from what it left (SA-16, SA-17, SA-18). Only the structured marker on its newest message says that the
 * provider failed: neither text nor an older message does. Out of turns: with an answer so far it is completed, without it failed.
 *
 * @param error what ended the graph; null = it ended by itself
 * @param guard the first limit that spoke up, if any
 */
export function outcomeOf(messages: readonly BaseMessage[], error: unknown, guard: string | null): SubagentOutcome {
  const last = messages.findLast((message) => isAi(message));
  const outOfTurns = isRecursionLimit(error) || guard === 'turn_capped';
  const stamped = last?.additional_kwargs[STOPPED_BY];
  const fired = [stamped, guard].find(isStopReason) ?? null;
  const stopReason: SubagentStopReason | null = fired ?? (outOfTurns ? 'turn_capped' : null);
  if (last?.additional_kwargs[ERROR_FALLBACK] === true)
    return { status: 'failed', stopReason, result: '', error: textOf(last) };
  if (error !== null && !isRecursionLimit(error))
    return { status: 'failed', stopReason, result: '', error: errorText(error) };
  const result = answerOf(messages);
  if (result !== '') return { status: 'completed', stopReason, result, error: null };
  return {
    status: 'failed',
    stopReason,
    result: '',
    error:
      stopReason === null
        ? 'The sub-agent ended without an answer.'
        : `The sub-agent was stopped (${stopReason}) before it had an answer.`,
  };
}

/** The newest text of the model. */
function answerOf(messages: readonly BaseMessage[]): string {
  const message = messages.findLast((candidate) => isAi(candidate) && textOf(candidate).trim() !== '');
  return message === undefined ? '' : textOf(message).trim();
}

export const isRecursionLimit = (error: unknown): boolean =>
  (error as { lc_error_code?: unknown } | null)?.lc_error_code === 'GRAPH_RECURSION_LIMIT';

export function errorText(error: unknown): string {
  return withoutHostDetails((error instanceof Error ? error.message : String(error)).slice(0, 4_000))
    .trim()
    .slice(0, LONGEST_ERROR);
}

/** What the model calls in a history used, as their messages say. */
export function usageOf(messages: readonly BaseMessage[]): SubagentUsage {
  let input = 0;
  let output = 0;
  for (const message of messages) {
    if (!isAi(message)) continue;
    const usage = message.usage_metadata as UsageMetadata | undefined;
    input += usage?.input_tokens ?? 0;
    output += usage?.output_tokens ?? 0;
  }
  return { input_tokens: input, output_tokens: output, total_tokens: input + output };
}

export const turnsOf = (messages: readonly BaseMessage[]): number => messages.filter((message) => isAi(message)).length;
