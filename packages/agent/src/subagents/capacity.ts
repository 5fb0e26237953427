import { type Clock, ReindeerError } from '@reindeer/protocol';
import type { CapacityLimits } from './settings.ts';

/**
 * Who may work, as a pure function. A sub-agent is in one of three places:
 *
 *   (request) → running            while there is room and nobody waits
 *   (request) → waiting → running  handed over by the one that releases, first come first served
 *   (request) → refused            the queue is full, or nothing is queued at all
 *   waiting → refused              it left: its time was over, or it was aborted
 *
 * Invariants (SA-26): running ≤ maxRunning; while anybody waits, all slots are taken; a slot goes to the longest waiting. Leaving counts
 * for waiters only: who was handed a slot in the same moment holds it, and must release it.
 */
export interface CapacityState {
  readonly limits: CapacityLimits;
  readonly running: readonly string[];
  /** In order of arrival. */
  readonly waiting: readonly string[];
}

export type Refusal = 'rejected' | 'queue_full' | 'queue_timeout' | 'aborted';

export type CapacityEvent =
  | { readonly kind: 'request'; readonly id: string }
  | { readonly kind: 'leave'; readonly id: string; readonly reason: 'queue_timeout' | 'aborted' }
  | { readonly kind: 'release'; readonly id: string }
  | { readonly kind: 'configure'; readonly limits: CapacityLimits };

export type CapacityEffect =
  | { readonly kind: 'admit'; readonly id: string }
  | { readonly kind: 'refuse'; readonly id: string; readonly reason: Refusal }
  /** The limits stay: somebody works or waits under them (SA-29). */
  | { readonly kind: 'busy' };

export interface CapacityStep {
  readonly state: CapacityState;
  readonly effects: readonly CapacityEffect[];
}

export const emptyCapacity = (limits: CapacityLimits): CapacityState => ({ limits, running: [], waiting: [] });

export function reduceCapacity(state: CapacityState, event: CapacityEvent): CapacityStep {
  const { limits, running, waiting } = state;
  const same: CapacityStep = { state, effects: [] };
  switch (event.kind) {
    case 'request': {
      const { id } = event;
      if (running.includes(id) || waiting.includes(id)) return same;
      const refuse = (reason: Refusal): CapacityStep => ({ state, effects: [{ kind: 'refuse', id, reason }] });
      if (running.length < limits.maxRunning)
        return { state: { ...state, running: [...running, id] }, effects: [{ kind: 'admit', id }] };
      if (limits.policy === 'reject') return refuse('rejected');
      if (waiting.length >= limits.maxQueued) return refuse('queue_full');
      return { state: { ...state, waiting: [...waiting, id] }, effects: [] };
    }
    case 'leave': {
      const { id, reason } = event;
      if (!waiting.includes(id)) return same;
      return {
        state: { ...state, waiting: waiting.filter((other) => other !== id) },
        effects: [{ kind: 'refuse', id, reason }],
      };
    }
    case 'release': {
      if (!running.includes(event.id)) return same;
      const left = running.filter((other) => other !== event.id);
      const [next, ...rest] = waiting;
      if (next === undefined) return { state: { ...state, running: left }, effects: [] };
      // Handed over in the same step, so that a newcomer cannot take the slot in between.
      return { state: { ...state, running: [...left, next], waiting: rest }, effects: [{ kind: 'admit', id: next }] };
    }
    case 'configure': {
      if (sameLimits(limits, event.limits)) return same;
      if (running.length > 0 || waiting.length > 0) return { state, effects: [{ kind: 'busy' }] };
      return { state: { ...state, limits: event.limits }, effects: [] };
    }
  }
}

const sameLimits = (a: CapacityLimits, b: CapacityLimits): boolean =>
  a.maxRunning === b.maxRunning &&
  a.maxQueued === b.maxQueued &&
  a.policy === b.policy &&
  a.queueTimeoutMs === b.queueTimeoutMs;

export interface Slot {
  /** Gives the slot to the longest waiting. Idempotent. */
  release(): void;
}

const REFUSED: Readonly<Record<Refusal, string>> = {
  rejected:
    'All sub-agents of this server are at work, and it does not queue more. Do the work yourself, or try later.',
  queue_full: 'Too many sub-agents are waiting on this server already. Do the work yourself, or try later.',
  queue_timeout: 'No sub-agent became free in time. Do the work yourself, or try later.',
  aborted: 'The wait for a sub-agent was stopped.',
};

/** The queue of one process: `reduceCapacity` with promises and timers around it. */
export class Capacity {
  readonly #clock: Clock;
  readonly #waiters = new Map<string, { admit(): void; refuse(reason: Refusal): void }>();
  #state: CapacityState;
  /** Limits that wait until nobody works or waits. */
  #next: CapacityLimits | null = null;

  constructor(limits: CapacityLimits, clock: Clock) {
    this.#state = emptyCapacity(limits);
    this.#clock = clock;
  }

  get state(): CapacityState {
    return this.#state;
  }

  /**
   * Resolves with a slot, at once or when it is this one's turn. Throws `over_capacity` with `detail.reason` (SA-27), or the signal's reason.
   *
   * @param id unique among those at work and waiting
   */
  async acquire(id: string, signal: AbortSignal): Promise<Slot> {
    signal.throwIfAborted();
    const outcome = Promise.withResolvers<Refusal | null>();
    this.#waiters.set(id, { admit: () => outcome.resolve(null), refuse: outcome.resolve });
    this.#apply({ kind: 'request', id });
    const onAbort = (): void => void this.#apply({ kind: 'leave', id, reason: 'aborted' });
    const timer = new AbortController();
    if (this.#state.waiting.includes(id)) {
      signal.addEventListener('abort', onAbort, { once: true });
      this.#clock.sleep(this.#state.limits.queueTimeoutMs, timer.signal).then(
        () => this.#apply({ kind: 'leave', id, reason: 'queue_timeout' }),
        () => undefined,
      );
    }
    try {
      const refusal = await outcome.promise;
      if (refusal === 'aborted') signal.throwIfAborted();
      if (refusal !== null)
        throw new ReindeerError('over_capacity', REFUSED[refusal], { retryable: true, detail: { reason: refusal } });
      return { release: () => void this.#apply({ kind: 'release', id }) };
    } finally {
      signal.removeEventListener('abort', onAbort);
      timer.abort(new ReindeerError('aborted', 'The wait is over.'));
    }
  }

  /** New limits; only while nobody works or waits (SA-29). Throws `conflict` else. The same limits change nothing. */
  configure(limits: CapacityLimits): void {
    const { effects } = this.#apply({ kind: 'configure', limits });
    if (effects.some((effect) => effect.kind === 'busy'))
      throw new ReindeerError(
        'conflict',
        'The limits of sub-agents can change only while none is at work or waiting.',
        {
          retryable: true,
        },
      );
  }

  /** New limits as soon as nobody works or waits (SA-29): at once, or before the next one that comes then. The newest of several counts. */
  configureWhenIdle(limits: CapacityLimits): void {
    this.#next = limits;
    this.#configureIfIdle();
  }

  #configureIfIdle(): void {
    if (this.#next === null || this.#state.running.length > 0 || this.#state.waiting.length > 0) return;
    this.#state = reduceCapacity(this.#state, { kind: 'configure', limits: this.#next }).state;
    this.#next = null;
  }

  #apply(event: CapacityEvent): CapacityStep {
    if (event.kind === 'request') this.#configureIfIdle();
    const step = reduceCapacity(this.#state, event);
    this.#state = step.state;
    for (const effect of step.effects) {
      if (effect.kind === 'busy') continue;
      const waiter = this.#waiters.get(effect.id);
      this.#waiters.delete(effect.id);
      if (effect.kind === 'admit') waiter?.admit();
      else waiter?.refuse(effect.reason);
    }
    return step;
  }
}
