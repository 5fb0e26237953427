import type { BatchItemStatus, BatchStatus } from './batch.ts';

/** The part of an item's row on which its transitions decide. */
export interface ItemState {
  readonly status: BatchItemStatus;
  readonly attempt: number;
  /** Token of the holder; null while nobody holds it. */
  readonly owner: string | null;
  /** Grows with every claim. */
  readonly epoch: number;
  readonly cancelRequested: boolean;
}

interface Held {
  readonly owner: string;
  readonly epoch: number;
}

export type ItemEvent =
  | { readonly kind: 'promote' }
  | { readonly kind: 'claim'; readonly owner: string }
  | ({ readonly kind: 'start' } & Held)
  | ({ readonly kind: 'finish'; readonly succeeded: boolean; readonly maxAttempts: number } & Held)
  | ({ readonly kind: 'release' } & Held)
  /** The lease is over and nobody renewed it. */
  | { readonly kind: 'expire'; readonly maxAttempts: number }
  /** One item is cancelled while its holder works: the holder is asked to stop. */
  | { readonly kind: 'request-cancel' }
  /** The whole batch is cancelled: holders are fenced off at once. */
  | { readonly kind: 'cancel' }
  | { readonly kind: 'retry' };

export const isItemOver = (status: BatchItemStatus): boolean =>
  status === 'succeeded' || status === 'failed' || status === 'cancelled';

export const isItemHeld = (status: BatchItemStatus): boolean => status === 'leased' || status === 'running';

/**
 * One step of an item; null = refused, nothing changes. A held item always has an owner and any other has none; an item that is over
 * changes only by a retry of a failed one; nobody but its holder moves a held item, except the end of its lease and a cancel.
 */
export function reduceItem(state: ItemState, event: ItemEvent): ItemState | null {
  const held = isItemHeld(state.status);
  const isHolder = (by: Held): boolean => held && state.owner === by.owner && state.epoch === by.epoch;
  switch (event.kind) {
    case 'promote':
      return state.status === 'pending' ? { ...state, status: 'queued' } : null;
    case 'claim':
      if (state.status !== 'queued') return null;
      return { ...state, status: 'leased', owner: event.owner, epoch: state.epoch + 1, attempt: state.attempt + 1 };
    case 'start':
      // A repeat after a lost answer is the same start: there is one worker per token.
      return isHolder(event) && !state.cancelRequested ? { ...state, status: 'running' } : null;
    case 'finish': {
      if (!isHolder(event)) return null;
      const failed = state.attempt < event.maxAttempts ? 'queued' : 'failed';
      const status = state.cancelRequested ? 'cancelled' : event.succeeded ? 'succeeded' : failed;
      return { ...state, status, owner: null };
    }
    case 'release': {
      if (!isHolder(event)) return null;
      const attempt = Math.max(state.attempt - 1, 0);
      return state.cancelRequested
        ? { ...state, status: 'cancelled', owner: null, attempt }
        : { ...state, status: 'queued', owner: null, attempt };
    }
    case 'expire': {
      if (!held) return null;
      const again = state.attempt < event.maxAttempts ? 'queued' : 'failed';
      return { ...state, status: state.cancelRequested ? 'cancelled' : again, owner: null };
    }
    case 'request-cancel':
      if (isItemOver(state.status) || state.cancelRequested) return null;
      return held ? { ...state, cancelRequested: true } : { ...state, status: 'cancelled', cancelRequested: true };
    case 'cancel':
      return isItemOver(state.status) ? null : { ...state, status: 'cancelled', owner: null, cancelRequested: true };
    case 'retry':
      return state.status === 'failed' ? { ...state, status: 'pending', attempt: 0 } : null;
  }
}

export type BatchEvent =
  | { readonly kind: 'pause' }
  | { readonly kind: 'resume' }
  | { readonly kind: 'cancel' }
  /** An item was leased. */
  | { readonly kind: 'work' }
  /** No item is open any more. */
  | { readonly kind: 'end'; readonly succeeded: number; readonly failed: number }
  /** A failed item is tried again. */
  | { readonly kind: 'reopen' };

export const isBatchOver = (status: BatchStatus): boolean =>
  status === 'completed' || status === 'failed' || status === 'cancelled';

/** One step of a batch; null = refused. `cancelled` is final (BT-11). */
export function reduceBatch(status: BatchStatus, event: BatchEvent): BatchStatus | null {
  switch (event.kind) {
    case 'pause':
      return status === 'queued' || status === 'running' ? 'paused' : null;
    case 'resume':
      return status === 'paused' ? 'queued' : null;
    case 'cancel':
      return isBatchOver(status) ? null : 'cancelled';
    case 'work':
      return status === 'queued' ? 'running' : null;
    case 'end':
      if (isBatchOver(status)) return null;
      return event.failed > 0 && event.succeeded === 0 ? 'failed' : 'completed';
    case 'reopen':
      if (status === 'cancelled') return null;
      return isBatchOver(status) ? 'queued' : status;
  }
}

/** What the shares of a scheduler's pass are decided on. */
export interface BatchDemand {
  readonly key: string;
  readonly userId: string;
  /** Items at work now. */
  readonly running: number;
  readonly maxRunning: number;
  /** Items that could begin. */
  readonly waiting: number;
}

/**
 * Shares `limit` slots: each goes to the user with the fewest items at work, within a user to the batch with the fewest, among equals to the
 * one that comes first in `demands`. So a batch of thousands cannot keep a small one waiting.
 */
export function shareSlots(demands: readonly BatchDemand[], limit: number): ReadonlyMap<string, number> {
  const shares = new Map<string, number>();
  const users = new Map<string, number>();
  for (const { userId, running } of demands) users.set(userId, (users.get(userId) ?? 0) + running);
  const open = demands.map((demand) => ({ ...demand, given: 0 }));
  for (let slot = 0; slot < limit; slot += 1) {
    let best: (typeof open)[number] | null = null;
    for (const demand of open) {
      if (demand.given >= demand.waiting || demand.running + demand.given >= demand.maxRunning) continue;
      if (best === null || before(demand, best)) best = demand;
    }
    if (best === null) break;
    best.given += 1;
    users.set(best.userId, (users.get(best.userId) ?? 0) + 1);
    shares.set(best.key, best.given);
  }
  return shares;

  function before(a: (typeof open)[number], b: (typeof open)[number]): boolean {
    const [ofA, ofB] = [users.get(a.userId) ?? 0, users.get(b.userId) ?? 0];
    return ofA === ofB ? a.running + a.given < b.running + b.given : ofA < ofB;
  }
}
