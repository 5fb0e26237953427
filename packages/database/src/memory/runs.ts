import type {
  AdmissionResult,
  DeliveryReceipt,
  RenewOutcome,
  Run,
  RunEvent,
  RunState,
  RunStore,
} from '@reindeer/protocol';
import { isTerminal, ReindeerError, reduceRun } from '@reindeer/protocol';
import { admittedRun } from '../runs/admitted.ts';
import { factsOfRun } from '../runs/report.ts';
import type { MemoryDatabase, RunRow } from './data.ts';
import { copyRun, idempotencyIndex, stateOf } from './data.ts';

type Conflict = Extract<AdmissionResult, { outcome: 'conflict' }>;

/** The text of a superseded row until its holder finalizes it, and afterwards when the holder gives no better one. */
const SUPERSEDED = 'Cancelled by newer run';
/** The text of a run that was cancelled while it was queued. */
const CANCELLED = 'Cancelled by user';

/** Runs one synchronous transaction and answers later; throws `store_unavailable` once the handle is closed. */
export type Transact = <T>(work: () => T) => Promise<T>;

/**
 * The run store on a memory database. Every transition is decided by `reduceRun`, inside one synchronous section together
 * with the fact that reports it; so this store is the executable model that the SQL stores are compared with.
 */
export function memoryRunStore(database: MemoryDatabase, transact: Transact): RunStore {
  const rowsOf = (threadId: string): readonly RunRow[] => database.runsOfThread.get(threadId) ?? [];

  /** Applies an event; null when it is refused or asks for what already is. */
  const apply = (row: RunRow, event: RunEvent, also: Partial<Run>, now: number): RunState | null => {
    const transition = reduceRun(stateOf(row), event);
    if (transition.outcome !== 'changed') return null;
    const { token, ...state } = transition.state;
    row.token = token ?? row.token;
    row.run = { ...row.run, ...state, ...also, updatedAt: now };
    return transition.state;
  };

  const report = (row: RunRow, now: number, receipt: DeliveryReceipt | null = null): void => {
    const { runId, threadId } = row.run;
    database.append(threadId, runId, factsOfRun(row.run, receipt), now);
    const thread = database.threads.get(threadId);
    if (thread !== undefined) thread.updatedAt = Math.max(thread.updatedAt, now);
  };

  const queueOf = (threadId: string): readonly RunRow[] => rowsOf(threadId).filter(({ run }) => run.queued);
  const isHeld = (threadId: string): boolean => rowsOf(threadId).some(({ run }) => !run.acknowledged && !run.queued);

  /** Nobody holds a queued run who could end it: whoever cancels or supersedes it writes its end. */
  const endQueued = (row: RunRow, event: RunEvent, error: string, now: number): void => {
    apply(row, event, { error, cancelRequestedAt: now, endedAt: now }, now);
    report(row, now);
  };

  const conflict = (reason: Conflict['reason'], row: RunRow | undefined): Conflict => ({
    outcome: 'conflict',
    reason,
    active: row === undefined ? null : copyRun(row),
  });

  return {
    admit: (input) =>
      transact((): AdmissionResult => {
        const { threadId, userId, now } = input;
        if (input.idempotencyKey !== null) {
          const runId = database.idempotencyKeys.get(idempotencyIndex(userId, input.idempotencyKey));
          const known = runId === undefined ? undefined : database.runs.get(runId);
          if (known !== undefined)
            return known.run.threadId === threadId && known.run.payloadHash === input.payloadHash
              ? { outcome: 'reused', run: copyRun(known) }
              : { outcome: 'conflict', reason: 'key_reused', active: null };
        }
        const thread = database.threads.get(threadId);
        if (thread === undefined ? !input.createThread : thread.userId !== userId)
          return { outcome: 'thread_not_found' };

        // Decide first, change afterwards: a conflict leaves everything as it was (RA-05).
        const holders = rowsOf(threadId).filter((row) => !row.run.acknowledged);
        const isRun = input.kind === 'run';
        const replaces = isRun && ['interrupt', 'rollback'].includes(input.multitaskStrategy);
        const mayWait = isRun && input.multitaskStrategy === 'enqueue';
        const queue: RunRow[] = [];
        let held: RunRow | undefined;
        const superseded: RunRow[] = [];
        const reclaimed: RunRow[] = [];
        for (const row of holders) {
          const live = row.leaseExpiresAt !== null && row.leaseExpiresAt > now;
          if (row.run.queued) queue.push(row);
          // A thread that is being deleted takes its queue with it.
          else if (mayWait && row.run.kind !== 'delete') held ??= row;
          else if (row.run.kind !== 'run') {
            if (!replaces || live) return conflict('reserved', row);
            reclaimed.push(row);
          } else if (!replaces) return conflict('busy', row);
          else if (isTerminal(row.run.status)) continue;
          else if (live && row.run.owner !== input.owner)
            return { ...conflict('live_elsewhere', row), leaseLeftMs: (row.leaseExpiresAt ?? now) - now };
          else superseded.push(row);
        }
        const [head] = queue;
        if (head !== undefined && !replaces && !mayWait) return conflict('busy', head);
        const queued = mayWait && (held !== undefined || head !== undefined);
        if (queued && queue.length >= (input.queueLimit ?? 0)) return conflict('queue_full', held ?? head);

        if (database.runs.has(input.runId))
          throw new ReindeerError('conflict', `The run id ${input.runId} exists already.`, {
            detail: { runId: input.runId },
          });

        for (const row of reclaimed) database.deleteRun(row);
        const action = input.multitaskStrategy === 'rollback' ? 'rollback' : 'interrupt';
        for (const row of superseded) {
          const cancelRequestedAt = row.run.cancelRequestedAt ?? now;
          apply(row, { type: 'supersede', action }, { error: SUPERSEDED, cancelRequestedAt }, now);
        }
        if (replaces) for (const row of queue) endQueued(row, { type: 'supersede', action }, SUPERSEDED, now);
        if (thread === undefined)
          database.threads.set(threadId, {
            threadId,
            userId,
            metadata: {},
            title: null,
            createdAt: now,
            updatedAt: now,
            order: database.nextOrder(),
          });
        const run = admittedRun(input, queued);
        const row: RunRow = {
          run,
          token: queued ? null : input.token,
          leaseExpiresAt: queued ? null : input.leaseExpiresAt,
          order: database.nextOrder(),
        };
        database.addRun(row);
        if (isRun) report(row, now);
        if (queued) return { outcome: 'queued', run: copyRun(row), ahead: queue.length, free: held === undefined };
        return { outcome: 'admitted', run: copyRun(row), superseded: superseded.map(copyRun) };
      }),

    start: ({ fence, checkpointBefore, now }) =>
      transact(() => {
        const row = database.held(fence);
        if (row === null) return { outcome: 'fenced' };
        const { run } = row;
        const also = {
          startedAt: run.startedAt ?? now,
          checkpointBefore: run.checkpointBefore ?? checkpointBefore,
        };
        if (apply(row, { type: 'start', token: fence.token }, also, now) !== null) {
          report(row, now);
          return { outcome: 'started', run: copyRun(row) };
        }
        // Running under this very token: the answer to an earlier call was lost. One worker per token, so it is the same start.
        return run.status === 'running' && run.cancelAction === null
          ? { outcome: 'started', run: copyRun(row) }
          : { outcome: 'cancelled', run: copyRun(row) };
      }),

    finalize: (input) =>
      transact(() => {
        const row = database.runs.get(input.fence.runId);
        if (row === undefined) return { outcome: 'fenced' };
        const { status, unlessCancelled, now, usage } = input;
        const event: RunEvent = { type: 'finalize', token: input.fence.token, status, unlessCancelled };
        const transition = reduceRun(stateOf(row), event);
        if (transition.outcome === 'refused') {
          if (row.run.acknowledged) return { outcome: 'terminal', run: copyRun(row) };
          if (transition.reason === 'fenced') return { outcome: 'fenced' };
          // A recorded cancel, or a superseded row that was asked for a success: the holder adopts the action.
          return { outcome: 'cancel_requested', action: row.run.cancelAction ?? 'interrupt' };
        }
        apply(
          row,
          event,
          {
            owner: null,
            error: input.error ?? row.run.error,
            stopReason: input.stopReason ?? row.run.stopReason,
            usage: { ...usage },
            endedAt: now,
          },
          now,
        );
        row.leaseExpiresAt = null;
        report(row, now, input.receipt ?? null);
        return { outcome: 'finalized', run: copyRun(row), waiting: queueOf(row.run.threadId).length > 0 };
      }),

    requestCancel: ({ runId, action, now }) =>
      transact(() => {
        const row = database.runs.get(runId);
        if (row === undefined) return { outcome: 'not_found' };
        const transition = reduceRun(stateOf(row), { type: 'cancel', action });
        if (transition.outcome === 'refused') return { outcome: 'terminal', run: copyRun(row) };
        if (row.run.queued) {
          endQueued(row, { type: 'cancel', action }, CANCELLED, now);
          return { outcome: 'terminal', run: copyRun(row) };
        }
        apply(row, { type: 'cancel', action }, { cancelRequestedAt: now }, now);
        return { outcome: 'recorded', action: row.run.cancelAction ?? 'interrupt', run: copyRun(row) };
      }),

    renew: ({ holders }) =>
      transact(() => {
        const outcomes = new Map<string, RenewOutcome>();
        for (const { runId, token, expiresAt, allowInterrupted } of holders) {
          const row = database.held({ runId, token });
          if (row === null) outcomes.set(runId, { outcome: 'lost' });
          else if (row.run.status === 'interrupted' && !allowInterrupted)
            outcomes.set(runId, { outcome: 'interrupted' });
          else {
            // RL-09: a renewal that arrives late never shortens a lease.
            const kept = Math.max(row.leaseExpiresAt ?? expiresAt, expiresAt);
            row.leaseExpiresAt = kept;
            outcomes.set(runId, { outcome: 'renewed', expiresAt: kept, cancelAction: row.run.cancelAction });
          }
        }
        return outcomes;
      }),

    claimOrphans: ({ owner, tokens, leaseExpiresAt, graceMs, deadOwners, skipRunIds, now }) =>
      transact(() => {
        const dead = new Set(deadOwners);
        const skip = new Set(skipRunIds);
        const claimed: { run: Run; token: string }[] = [];
        for (const row of database.runs.values()) {
          const token = tokens[claimed.length];
          if (token === undefined) break;
          const expired = row.leaseExpiresAt === null || row.leaseExpiresAt + graceMs < now;
          const orphaned = expired || (row.run.owner !== null && dead.has(row.run.owner));
          if (!orphaned || skip.has(row.run.runId)) continue;
          if (apply(row, { type: 'claim', token }, { owner }, now) === null) continue;
          row.leaseExpiresAt = leaseExpiresAt;
          claimed.push({ run: copyRun(row), token });
        }
        return claimed;
      }),

    get: (runId) =>
      transact(() => {
        const row = database.runs.get(runId);
        return row === undefined ? null : copyRun(row);
      }),

    list: ({ threadId, userId, status, limit, offset }) =>
      transact(() =>
        rowsOf(threadId)
          .filter(
            ({ run }) => run.kind === 'run' && run.userId === userId && (status === null || run.status === status),
          )
          .sort((a, b) => b.run.createdAt - a.run.createdAt || b.order - a.order)
          .slice(offset, offset + limit)
          .map(copyRun),
      ),

    takeQueued: ({ threadId, owner, token, leaseExpiresAt, now }) =>
      transact(() => {
        const again = rowsOf(threadId).find((row) => !row.run.acknowledged && row.token === token);
        if (again !== undefined) return copyRun(again);
        const [row] = queueOf(threadId);
        if (row === undefined || isHeld(threadId)) return null;
        apply(row, { type: 'take', token }, { owner }, now);
        row.leaseExpiresAt = leaseExpiresAt;
        return copyRun(row);
      }),

    freeQueues: (limit) =>
      transact(() => {
        const threads = [...database.runs.values()].filter(({ run }) => run.queued).map(({ run }) => run.threadId);
        return [...new Set(threads)].filter((threadId) => !isHeld(threadId)).slice(0, limit);
      }),

    active: (threadId) =>
      transact(() =>
        rowsOf(threadId)
          .filter(({ run }) => !run.acknowledged && !run.queued)
          .map(copyRun),
      ),

    release: (fence) =>
      transact(() => {
        const row = database.held(fence);
        if (row === null || row.run.kind === 'run') return { outcome: 'fenced' };
        database.deleteRun(row);
        return { outcome: 'ok', waiting: queueOf(row.run.threadId).length > 0 };
      }),

    relinquish: (fence) =>
      transact(() => {
        const row = database.held(fence);
        if (row === null) return { outcome: 'fenced' };
        row.leaseExpiresAt = null;
        return { outcome: 'ok' };
      }),

    remove: ({ runId, userId }) =>
      transact(() => {
        const row = database.runs.get(runId);
        if (row === undefined || row.run.userId !== userId || row.run.kind !== 'run') return 'not_found';
        if (!row.run.acknowledged) return 'active';
        database.deleteRun(row);
        return 'removed';
      }),
  };
}
