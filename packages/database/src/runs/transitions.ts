import {
  type CancelAction,
  type Fence,
  type Fenced,
  ReindeerError,
  type Run,
  type RunStore,
  type TerminalStatus,
} from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { fenceRun } from '../fence.ts';
import { deleteRun } from './admit.ts';
import { endQueued, isWaiting } from './queue.ts';
import { reportRun } from './report.ts';
import { findRun } from './rows.ts';

/**
 * The transitions of `reduceRun` (protocol), each as one conditional UPDATE: what stands in its WHERE is the rule. When nothing
 * matched, the row is read to say why.
 */
type Input<M extends keyof RunStore> = Parameters<RunStore[M]>[0];
type Output<M extends keyof RunStore> = Awaited<ReturnType<RunStore[M]>>;

const startRun = defineStatement(
  (db, p: { runId: string; token: string; checkpointBefore: string | null; now: number }) =>
    db
      .updateTable('runs')
      .set({
        status: 'running',
        attempt: sql<number>`attempt + 1`,
        started_at: sql<number>`coalesce(started_at, ${p.now})`,
        // The first attempt's head is the target of a rollback, whatever later attempts find.
        checkpoint_before: sql<string>`coalesce(checkpoint_before, ${p.checkpointBefore})`,
        updated_at: p.now,
      })
      .where('run_id', '=', p.runId)
      .where('token', '=', p.token)
      .where('acknowledged', '=', 0)
      .where('status', '=', 'pending')
      .where('cancel_action', 'is', null),
);

const finalizeRun = defineStatement(
  (
    db,
    p: {
      runId: string;
      token: string;
      status: TerminalStatus;
      error: string | null;
      stopReason: string | null;
      unlessCancelled: boolean;
      inputTokens: number;
      outputTokens: number;
      totalTokens: number;
      modelCalls: number;
      usageBy: string | null;
      now: number;
    },
  ) =>
    db
      .updateTable('runs')
      .set({
        status: p.status,
        acknowledged: 1,
        owner: null,
        error: sql<string>`coalesce(${p.error}, error)`,
        stop_reason: sql<string>`coalesce(${p.stopReason}, stop_reason)`,
        input_tokens: p.inputTokens,
        output_tokens: p.outputTokens,
        total_tokens: p.totalTokens,
        model_calls: p.modelCalls,
        usage_by: p.usageBy,
        ended_at: p.now,
        updated_at: p.now,
      })
      .where('run_id', '=', p.runId)
      .where('token', '=', p.token)
      .where('acknowledged', '=', 0)
      .where((eb) =>
        eb.or([
          // Superseded: only an acknowledgement or the outcome of a rollback is left.
          eb.and([eb('status', '=', 'interrupted'), sql<boolean>`${p.status} in ('interrupted', 'error')`]),
          eb.and([
            eb('status', 'in', ['pending', 'running']),
            eb.or([sql<boolean>`${p.unlessCancelled} = 0`, eb('cancel_action', 'is', null)]),
          ]),
        ]),
      ),
);
const endLease = defineStatement((db, p: { runId: string }) =>
  db.deleteFrom('run_leases').where('run_id', '=', p.runId),
);

/** The first action wins (RL-12). */
const cancelRun = defineStatement((db, p: { runId: string; action: CancelAction; now: number }) =>
  db
    .updateTable('runs')
    .set({ cancel_action: p.action, cancel_requested_at: p.now, updated_at: p.now })
    .where('run_id', '=', p.runId)
    .where('acknowledged', '=', 0)
    .where('status', 'in', ['pending', 'running'])
    .where('cancel_action', 'is', null),
);

const isReservation = defineStatement((db, p: { runId: string }) =>
  db.selectFrom('runs').select('thread_id').where('run_id', '=', p.runId).where('kind', '!=', 'run'),
);

/** The text of a run that was cancelled while it was queued. */
const CANCELLED = 'Cancelled by user';

/** After a conditional update on a run that exists. */
async function existing(tx: Tx, runId: string): Promise<Run> {
  const run = await findRun(tx, runId);
  if (run === null) throw withoutDetails(runId);
  return run;
}

const withoutDetails = (runId: string) => new ReindeerError('internal', `The run ${runId} has no details.`);

export const start = defineScript(
  'runs.start',
  'write',
  async (tx, input: Input<'start'>): Promise<Output<'start'>> => {
    const { fence, checkpointBefore, now } = input;
    const [changed, run] = await Promise.all([
      tx.run(startRun, { ...fence, checkpointBefore, now }),
      findRun(tx, fence.runId),
    ]);
    if (changed === 1) {
      if (run === null) throw withoutDetails(fence.runId);
      await reportRun(tx, run, now);
      return { outcome: 'started', run };
    }
    if (!(await fenceRun(tx, fence))) return { outcome: 'fenced' };
    if (run === null) throw withoutDetails(fence.runId);
    // Running under this very token: the answer to an earlier call was lost. One worker per token, so it is the same start.
    const again = run.status === 'running' && run.cancelAction === null;
    return { outcome: again ? 'started' : 'cancelled', run };
  },
);

export const finalize = defineScript(
  'runs.finalize',
  'durable',
  async (tx, input: Input<'finalize'>): Promise<Output<'finalize'>> => {
    const { fence, status, error, stopReason, unlessCancelled, usage, receipt, now } = input;
    const { by, ...counters } = usage;
    const usageBy = by === undefined ? null : JSON.stringify(by);
    const [changed, run] = await Promise.all([
      tx.run(finalizeRun, { ...fence, status, error, stopReason, unlessCancelled, ...counters, usageBy, now }),
      findRun(tx, fence.runId),
    ]);
    if (run === null) return { outcome: 'fenced' };
    if (changed === 1) {
      // Asked behind the end: whoever joins the queue later finds the thread free.
      tx.send(endLease, { runId: fence.runId });
      const [waiting] = await Promise.all([isWaiting(tx, run.threadId), reportRun(tx, run, now, receipt ?? null)]);
      return { outcome: 'finalized', run, waiting };
    }
    if (run.acknowledged) return { outcome: 'terminal', run };
    if (!(await fenceRun(tx, fence))) return { outcome: 'fenced' };
    // A recorded cancel, or a superseded row that was asked for a success: the holder adopts the action.
    return { outcome: 'cancel_requested', action: run.cancelAction ?? 'interrupt' };
  },
);

export const requestCancel = defineScript(
  'runs.requestCancel',
  'durable',
  async (tx, input: Input<'requestCancel'>): Promise<Output<'requestCancel'>> => {
    if (await endQueued(tx, { ...input, error: CANCELLED })) {
      const run = await existing(tx, input.runId);
      await reportRun(tx, run, input.now);
      return { outcome: 'terminal', run };
    }
    await tx.run(cancelRun, input);
    const run = await findRun(tx, input.runId);
    if (run === null) return { outcome: 'not_found' };
    if (run.acknowledged) return { outcome: 'terminal', run };
    return { outcome: 'recorded', action: run.cancelAction ?? 'interrupt', run };
  },
);

export const release = defineScript('runs.release', 'durable', async (tx, fence: Fence): Promise<Output<'release'>> => {
  if (!(await fenceRun(tx, fence))) return { outcome: 'fenced' };
  const reservation = await tx.first(isReservation, { runId: fence.runId });
  if (reservation === undefined) return { outcome: 'fenced' };
  deleteRun(tx, fence.runId);
  return { outcome: 'ok', waiting: await isWaiting(tx, reservation.thread_id) };
});

export const relinquish = defineScript(
  'runs.relinquish',
  'durable',
  async (tx, fence: Fence): Promise<Fenced<object>> => {
    if (!(await fenceRun(tx, fence))) return { outcome: 'fenced' };
    await tx.run(endLease, { runId: fence.runId });
    return { outcome: 'ok' };
  },
);

export const remove = defineScript(
  'runs.remove',
  'write',
  async (tx, input: Input<'remove'>): Promise<Output<'remove'>> => {
    const run = await findRun(tx, input.runId);
    if (run === null || run.userId !== input.userId || run.kind !== 'run') return 'not_found';
    if (!run.acknowledged) return 'active';
    deleteRun(tx, input.runId);
    return 'removed';
  },
);
