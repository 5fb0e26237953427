import type { CancelAction, Run, TerminalStatus } from '@reindeer/protocol';
import type { StopReason } from './local-run.ts';

/** How a run is to end: what its holder will write. */
export interface Ending {
  readonly status: TerminalStatus;
  readonly error: string | null;
  readonly stopReason: string | null;
  /** Restore the checkpoints of before the run first. */
  readonly rollback: boolean;
  /** Carries out a recorded cancel; any other ending gives way to one that was recorded first (RL-14). */
  readonly cancel: boolean;
}

export const ROLLED_BACK = 'Rolled back by user';
export const SUPERSEDED = 'Cancelled by newer run';
export const CANCELLED = 'Cancelled by user';
export const NOT_ROLLED_BACK = 'The rollback failed: the state of before could not be restored.';

/** `stop_reason` of a run that ended because its graph asks something; the thread then reads `interrupted`. */
export const ASKS = 'interrupt';

export const SUCCESS: Ending = { status: 'success', error: null, stopReason: null, rollback: false, cancel: false };

export const failure = (error: string, stopReason: string | null = null): Ending => ({
  status: 'error',
  error,
  stopReason,
  rollback: false,
  cancel: false,
});

/**
 * The ending of a run that was told to stop. `touched`: a worker of it may have written checkpoints, so a rollback has something
 * to undo; a run that was cancelled before it started leaves the checkpoints alone (RB-11). A rollback target that was never
 * captured disables the rollback, it deletes nothing (RB-02).
 *
 * @returns null for a fenced run: nothing may be written.
 */
export function endingOf(reason: StopReason, run: Pick<Run, 'checkpointBefore'>, touched: boolean): Ending | null {
  const cancel = reason.kind === 'cancelled' || reason.kind === 'superseded';
  const interrupted = (error: string): Ending => ({
    status: 'interrupted',
    error,
    stopReason: null,
    rollback: false,
    cancel,
  });
  const undone = (action: CancelAction, text: string): Ending => {
    if (action === 'interrupt') return interrupted(text);
    if (!touched) return interrupted(text);
    if (run.checkpointBefore === null) return interrupted(`${text}; not rolled back: the state before is not known`);
    return { status: 'error', error: ROLLED_BACK, stopReason: null, rollback: true, cancel };
  };
  switch (reason.kind) {
    case 'fenced':
      return null;
    case 'cancelled':
      return undone(reason.action, CANCELLED);
    case 'superseded':
      return undone(reason.action, SUPERSEDED);
    case 'timeout':
      return {
        status: 'timeout',
        error: 'The run took longer than it may.',
        stopReason: null,
        rollback: false,
        cancel,
      };
    case 'shutdown':
      return interrupted('Interrupted: the server was stopped');
  }
}

/**
 * What to do with a run that was taken over from a dead holder (D7): null = go on with it.
 * A superseded or cancelled one is finished as such; policy `error` and too many attempts end it.
 */
export function endingOfOrphan(run: Run, maxAttempts: number): Ending | null {
  const touched = run.attempt > 0;
  if (run.status === 'interrupted') {
    return endingOf({ kind: 'superseded', action: run.cancelAction ?? 'interrupt' }, run, touched);
  }
  if (run.cancelAction !== null) return endingOf({ kind: 'cancelled', action: run.cancelAction }, run, touched);
  if (run.crashPolicy === 'error') {
    return failure('The process that held this run ended before the run did.', 'orphan_recovered');
  }
  if (run.attempt >= maxAttempts) {
    return failure(`Given up after ${run.attempt} attempts: each ended with its process.`, 'orphan_recovered');
  }
  return null;
}

/** Does the end of this run carry out a cancel, or what comes to the same? */
export function wasCancelled({ status, error }: Pick<Run, 'status' | 'error'>): boolean {
  return status === 'interrupted' || (status === 'error' && (error === ROLLED_BACK || error === NOT_ROLLED_BACK));
}
