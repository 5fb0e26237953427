import { createHash } from 'node:crypto';
import { ReindeerError } from '@reindeer/protocol';

export const STATUSES = ['completed', 'failed', 'cancelled', 'timed_out', 'polling_timed_out'] as const;
export type SubagentStatus = (typeof STATUSES)[number];
export const STOP_REASONS = ['token_capped', 'turn_capped', 'loop_capped'] as const;
export type SubagentStopReason = (typeof STOP_REASONS)[number];

export interface SubagentUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly total_tokens: number;
}

/** How a sub-agent ended. */
export interface SubagentOutcome {
  readonly status: SubagentStatus;
  /** Why it ended early; null = by itself, or `status` says it. */
  readonly stopReason: SubagentStopReason | null;
  /** Its answer; '' = none. */
  readonly result: string;
  readonly error: string | null;
}

/** What the result of a `task` call says about its sub-agent: data, so that nobody parses the text. */
export interface SubagentMetadata {
  readonly subagent_status: SubagentStatus;
  readonly subagent_stop_reason?: SubagentStopReason;
  readonly subagent_error?: string;
  readonly subagent_result_brief?: string;
  readonly subagent_result_sha256?: string;
  readonly subagent_model_name?: string;
  readonly subagent_token_usage?: SubagentUsage;
  readonly subagent_type?: string;
  readonly subagent_description?: string;
  /** Names the execution, and the namespace of its frames and checkpoints. */
  readonly subagent_execution_id?: string;
}

const BRIEF = 500;
const LONGEST_ERROR = 1_000;

/** Throws `internal` for a status or stop reason that there is not (SA-19). */
export function subagentMetadata(
  outcome: SubagentOutcome,
  more: {
    readonly model: string | null;
    readonly usage: SubagentUsage;
    readonly type: string;
    readonly description: string;
    readonly executionId: string;
  },
): SubagentMetadata {
  if (!isStatus(outcome.status))
    throw new ReindeerError('internal', `"${String(outcome.status)}" is no status of a sub-agent.`);
  if (outcome.stopReason !== null && !isStopReason(outcome.stopReason))
    throw new ReindeerError('internal', `"${String(outcome.stopReason)}" is no stop reason of a sub-agent.`);
  const { result, error } = outcome;
  return {
    subagent_status: outcome.status,
    ...(outcome.stopReason === null ? {} : { subagent_stop_reason: outcome.stopReason }),
    ...(error === null ? {} : { subagent_error: error.slice(0, LONGEST_ERROR) }),
    ...(result === ''
      ? {}
      : {
          subagent_result_brief: result.length > BRIEF ? `${result.slice(0, BRIEF - 1)}…` : result,
          subagent_result_sha256: createHash('sha256').update(result).digest('hex'),
        }),
    ...(more.model === null ? {} : { subagent_model_name: more.model }),
    subagent_token_usage: more.usage,
    subagent_type: more.type,
    subagent_description: more.description,
    subagent_execution_id: more.executionId,
  };
}

/** Statuses of older logs for a sub-agent that ran out of turns. */
const LEGACY_TURNS: readonly unknown[] = ['max_turns_reached', 'max turns reached'];

/**
 * Reads the metadata of a tool message's `additional_kwargs`; null when there is none. Throws `validation_failed` for a status or
 * stop reason that is not known (SA-19).
 */
export function readSubagentMetadata(kwargs: Readonly<Record<string, unknown>>): SubagentMetadata | null {
  const { subagent_status: status, subagent_stop_reason: reason } = kwargs;
  if (status === undefined) return null;
  const read = { ...kwargs } as unknown as SubagentMetadata;
  if (LEGACY_TURNS.includes(status)) {
    const answered = typeof kwargs.subagent_result_brief === 'string' && kwargs.subagent_result_brief !== '';
    return { ...read, subagent_status: answered ? 'completed' : 'failed', subagent_stop_reason: 'turn_capped' };
  }
  if (!isStatus(status)) throw unknown('subagent_status', status, STATUSES);
  if (reason !== undefined && !isStopReason(reason)) throw unknown('subagent_stop_reason', reason, STOP_REASONS);
  return read;
}

const unknown = (field: string, value: unknown, known: readonly string[]): ReindeerError =>
  new ReindeerError(
    'validation_failed',
    `${field}: "${String(value).slice(0, 100)}" is not known. Known: ${known.join(', ')}.`,
    { detail: { field } },
  );

const isStatus = (value: unknown): value is SubagentStatus => STATUSES.some((status) => status === value);
export const isStopReason = (value: unknown): value is SubagentStopReason =>
  STOP_REASONS.some((reason) => reason === value);
