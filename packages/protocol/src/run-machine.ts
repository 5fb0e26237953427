import type { CancelAction, RunStatus, TerminalStatus } from './run.ts';
import { isTerminal } from './run.ts';

/** The part of a run row on which transitions are decided. */
export interface RunState {
  readonly status: RunStatus;
  /** Waits behind other runs of its thread; then nobody holds it, and `token` is null. */
  readonly queued: boolean;
  readonly token: string | null;
  readonly attempt: number;
  readonly acknowledged: boolean;
  readonly cancelAction: CancelAction | null;
}

export type RunEvent =
  /** A worker of the holder begins. */
  | { readonly type: 'start'; readonly token: string }
  /** The holder's terminal write. `unlessCancelled`: refuse while a cancel is recorded (`success` always sets it). */
  | {
      readonly type: 'finalize';
      readonly token: string;
      readonly status: TerminalStatus;
      readonly unlessCancelled: boolean;
    }
  /** Somebody asks for an end. */
  | { readonly type: 'cancel'; readonly action: CancelAction }
  /** A newer run replaces this one, in the transaction that admits the newer one. */
  | { readonly type: 'supersede'; readonly action: CancelAction }
  /** The lease ran out (or the holder is known to be dead) and a new holder takes the row under a new token. */
  | { readonly type: 'claim'; readonly token: string }
  /** The turn of a queued run: somebody takes it to work on it. */
  | { readonly type: 'take'; readonly token: string };

export type RunRefusal =
  | 'fenced' // the caller's token is not the row's
  | 'terminal' // nothing changes any more
  | 'cancel_requested' // a cancel was recorded first; the worker adopts it
  | 'not_pending'
  | 'queued' // nobody holds it, so that nobody can have lost it
  | 'not_queued';

export type RunTransition =
  | { readonly outcome: 'changed'; readonly state: RunState }
  /** The event asks for what already is; nothing is written. */
  | { readonly outcome: 'unchanged'; readonly state: RunState }
  | { readonly outcome: 'refused'; readonly reason: RunRefusal };

/**
 * The run state machine as a total, pure function: the single definition of which writes are allowed. Stores express the
 * same rules as one conditional UPDATE each; simulation and contract tests compare the two.
 *
 * Invariants (property-tested): acknowledged is absorbing; `success | error | timeout` are absorbing; an unacknowledged
 * `interrupted` goes to `interrupted` or `error` only; a wrong token changes nothing; the first cancel action stays; a queued run has
 * no token, and is ended by whoever cancels it.
 */
export function reduceRun(state: RunState, event: RunEvent): RunTransition {
  const refused = (reason: RunRefusal): RunTransition => ({ outcome: 'refused', reason });
  const changed = (part: Partial<RunState>): RunTransition => ({ outcome: 'changed', state: { ...state, ...part } });
  const endedInQueue = (action: CancelAction): RunTransition =>
    changed({ status: 'interrupted', queued: false, acknowledged: true, cancelAction: action });

  switch (event.type) {
    case 'start':
      if (state.acknowledged) return refused('terminal');
      if (state.token !== event.token) return refused('fenced');
      if (isTerminal(state.status)) return refused('terminal');
      if (state.cancelAction !== null) return refused('cancel_requested');
      if (state.status !== 'pending') return refused('not_pending');
      return changed({ status: 'running', attempt: state.attempt + 1 });

    case 'finalize':
      if (state.acknowledged) return refused('terminal');
      if (state.token !== event.token) return refused('fenced');
      if (state.status === 'interrupted') {
        // Superseded: only the rollback outcome or a plain acknowledgement is left (seed 003).
        if (event.status !== 'interrupted' && event.status !== 'error') return refused('terminal');
        return changed({ status: event.status, acknowledged: true });
      }
      if (event.unlessCancelled && state.cancelAction !== null) return refused('cancel_requested');
      return changed({ status: event.status, acknowledged: true });

    case 'cancel':
      if (state.acknowledged || (isTerminal(state.status) && state.status !== 'interrupted'))
        return refused('terminal');
      if (state.queued) return endedInQueue(event.action);
      if (state.cancelAction !== null || state.status === 'interrupted') return { outcome: 'unchanged', state };
      return changed({ cancelAction: event.action });

    case 'supersede':
      if (isTerminal(state.status)) return refused('terminal');
      if (state.queued) return endedInQueue(event.action);
      return changed({ status: 'interrupted', cancelAction: state.cancelAction ?? event.action });

    case 'claim':
      if (state.acknowledged) return refused('terminal');
      if (state.queued) return refused('queued');
      // A running row goes back to pending so that the new holder's worker starts it like any other.
      return changed({ token: event.token, status: state.status === 'running' ? 'pending' : state.status });

    case 'take':
      if (state.acknowledged) return refused('terminal');
      if (!state.queued) return refused('not_queued');
      return changed({ queued: false, token: event.token });
  }
}
