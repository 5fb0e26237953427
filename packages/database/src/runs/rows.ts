import type {
  CancelAction,
  CrashPolicy,
  DisconnectMode,
  MultitaskStrategy,
  Run,
  RunKind,
  RunRequest,
  RunStatus,
  UsageShares,
} from '@reindeer/protocol';
import type { Kysely } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import type { Database } from '../schema.ts';

/** A run's row with its details: everything but the token, which no reader gets. */
export function selectRuns(db: Kysely<Database>) {
  return db
    .selectFrom('runs')
    .innerJoin('run_details', 'run_details.run_id', 'runs.run_id')
    .select([
      'runs.run_id',
      'runs.thread_id',
      'runs.user_id',
      'runs.kind',
      'runs.status',
      'runs.owner',
      'runs.attempt',
      'runs.acknowledged',
      'runs.cancel_action',
      'runs.cancel_requested_at',
      'runs.checkpoint_before',
      'runs.error',
      'runs.stop_reason',
      'runs.input_tokens',
      'runs.output_tokens',
      'runs.total_tokens',
      'runs.model_calls',
      'runs.usage_by',
      'runs.created_at',
      'runs.updated_at',
      'runs.started_at',
      'runs.ended_at',
      'runs.idempotency_key',
      'run_details.assistant_id',
      'run_details.multitask_strategy',
      'run_details.on_disconnect',
      'run_details.crash_policy',
      'run_details.payload_hash',
      'run_details.request',
      'run_details.metadata',
    ]);
}

type RunRecord = Awaited<ReturnType<ReturnType<typeof selectRuns>['execute']>>[number];

/** A row as the protocol's `Run`. The row was written by us, so that its texts are of the right kinds. */
export function toRun(row: RunRecord): Run {
  return {
    runId: row.run_id,
    threadId: row.thread_id,
    userId: row.user_id,
    assistantId: row.assistant_id,
    kind: row.kind as RunKind,
    // A queued run is a pending one that nobody holds yet; the database allows one other pending one beside it.
    status: row.status === 'queued' ? 'pending' : (row.status as RunStatus),
    queued: row.status === 'queued',
    owner: row.owner,
    attempt: row.attempt,
    acknowledged: row.acknowledged === 1,
    multitaskStrategy: row.multitask_strategy as MultitaskStrategy,
    onDisconnect: row.on_disconnect as DisconnectMode,
    crashPolicy: row.crash_policy as CrashPolicy,
    idempotencyKey: row.idempotency_key,
    payloadHash: row.payload_hash,
    request: JSON.parse(row.request) as RunRequest,
    metadata: JSON.parse(row.metadata) as Run['metadata'],
    cancelAction: toCancelAction(row.cancel_action),
    cancelRequestedAt: row.cancel_requested_at,
    checkpointBefore: row.checkpoint_before,
    error: row.error,
    stopReason: row.stop_reason,
    usage: {
      inputTokens: row.input_tokens,
      outputTokens: row.output_tokens,
      totalTokens: row.total_tokens,
      modelCalls: row.model_calls,
      ...(row.usage_by === null ? {} : { by: JSON.parse(row.usage_by) as UsageShares }),
    },
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
  };
}

/** An action that this version does not know stops the run without touching its state: the weaker of the two (RL-33). */
export function toCancelAction(stored: string | null): CancelAction | null {
  if (stored === null) return null;
  return stored === 'rollback' ? 'rollback' : 'interrupt';
}

const byId = defineStatement((db, p: { runId: string }) => selectRuns(db).where('runs.run_id', '=', p.runId));

export async function findRun(tx: Tx, runId: string): Promise<Run | null> {
  const row = await tx.first(byId, { runId });
  return row === undefined ? null : toRun(row);
}
