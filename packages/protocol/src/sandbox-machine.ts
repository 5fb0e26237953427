import type { SandboxIdentity, SandboxInfo } from './sandbox-backend.ts';

/**
 * The lifecycle of one sandbox as one instance sees it:
 *
 * absent ──track──▶ active ⇄ (park, promote) ⇄ warm        absent ──adopt──▶ warm (identity unknown)
 * active, warm ──reserve … untrack──▶ absent (this instance stops the container)
 * active, warm ──forget──▶ absent (the container is somebody else's and stays)
 *
 * Three marks lie across the phases. `reserved`: this instance is stopping the container; nothing may promote, track, adopt or forget it.
 * `publishing`: ownership is being published right now; set *before* the round trip, since the store may say "ours" before the answer
 * arrives. `epoch`: a new number whenever the store has said "ours" (published, adopted, renewed), whenever an entry is made, and after
 * each stop that left the container; a verdict that was reached under an older one is void. No two lives of one id share a number:
 * two verdicts may be on their way at once, and the second must not meet what was acquired again after the first.
 */
export interface SandboxState {
  readonly phase: 'absent' | 'active' | 'warm';
  /** The container behind an active or warm entry. */
  readonly info: SandboxInfo | null;
  /** null = unknown: an adopted container gets its identity at its first promotion. */
  readonly identity: SandboxIdentity | null;
  /** Monotonic milliseconds of the last use. */
  readonly activeAt: number;
  /** Monotonic milliseconds since when it is warm. */
  readonly parkedAt: number;
  readonly reserved: boolean;
  readonly publishing: number;
  /** Never 0 for what is active or warm. */
  readonly epoch: number;
  /** Foreground commands that run right now: use, however long they take. */
  readonly commands: number;
  /** An acquire of this instance is starting a container of this id. */
  readonly creating: boolean;
  /** Monotonic milliseconds since when an untracked container of this id was seen without an owner; null = not counting. */
  readonly unownedSince: number | null;
  /** The container that this time is about: a new one of the same id waits a whole grace of its own. */
  readonly unowned: SandboxInfo | null;
  /** Which memory of the store it was: what the store has forgotten since may have been an owner. */
  readonly unownedIn: string | null;
}

export const ABSENT_SANDBOX: SandboxState = {
  phase: 'absent',
  info: null,
  identity: null,
  activeAt: 0,
  parkedAt: 0,
  reserved: false,
  publishing: 0,
  epoch: 0,
  commands: 0,
  creating: false,
  unownedSince: null,
  unowned: null,
  unownedIn: null,
};

/** What must still hold at the very moment of a reservation: the predicate and the reservation are one step (SB-38). */
export type ReserveCondition =
  | { readonly kind: 'tracked' }
  /** Active, and not used since `before`. */
  | { readonly kind: 'idle'; readonly before: number }
  /** Warm with this container, without a command that still runs. */
  | { readonly kind: 'warm'; readonly info: SandboxInfo }
  /** The same, and parked at or before `before`. */
  | { readonly kind: 'expired'; readonly info: SandboxInfo; readonly before: number }
  /** Still the container that the health check looked at (SB-41). */
  | { readonly kind: 'same'; readonly info: SandboxInfo }
  /** In no map: a new container that did not become ready (SB-21). */
  | { readonly kind: 'untracked' };

export type SandboxEvent =
  | { readonly type: 'publish-began' }
  /** `epoch`: a number never used before when the publication succeeded, else null. */
  | { readonly type: 'publish-ended'; readonly epoch: number | null }
  | { readonly type: 'create-began' }
  | { readonly type: 'create-ended' }
  /** A container is handed out: it was created or discovered. `epoch`: a number never used before. */
  | {
      readonly type: 'track';
      readonly info: SandboxInfo;
      readonly identity: SandboxIdentity;
      readonly now: number;
      readonly epoch: number;
    }
  /** warm → active. */
  | { readonly type: 'promote'; readonly info: SandboxInfo; readonly identity: SandboxIdentity; readonly now: number }
  | { readonly type: 'touch'; readonly now: number }
  | { readonly type: 'command-began'; readonly now: number }
  | { readonly type: 'command-ended'; readonly now: number }
  /** active → warm. */
  | { readonly type: 'park'; readonly now: number }
  | { readonly type: 'reserve'; readonly condition: ReserveCondition }
  /** The holder of the reservation takes the entry out of all maps. `condition`: what must hold now as it did at the reservation. */
  | { readonly type: 'untrack'; readonly condition?: ReserveCondition }
  /** `epoch`: a number never used before, so that a verdict about the marker of this very stop is void. */
  | { readonly type: 'teardown-ended'; readonly epoch: number }
  /** The store has renewed the lease, or granted it again. `epoch`: a number never used before. */
  | { readonly type: 'kept'; readonly epoch: number }
  /** The lease is lost. `epoch`: the one under which the verdict was reached; null = without such a bound. */
  | { readonly type: 'forget'; readonly epoch: number | null }
  /** Reconciliation looked at an untracked running container. `memory`: which memory of the store said so; null = it never forgets. */
  | {
      readonly type: 'seen';
      readonly info: SandboxInfo;
      readonly owned: boolean;
      readonly now: number;
      readonly memory: string | null;
    }
  | { readonly type: 'vanished' }
  /** `epoch`: a number never used before. */
  | { readonly type: 'adopt'; readonly info: SandboxInfo; readonly now: number; readonly epoch: number };

export type SandboxRefusal =
  | 'reserved' // this instance is stopping it
  | 'publishing' // an acquire is publishing ownership right now
  | 'epoch' // it was acquired again since the verdict
  | 'identity' // it belongs to somebody else
  | 'replaced' // another container stands there now
  | 'phase' // not in the phase that the event needs
  | 'busy' // a command runs
  | 'condition'; // used, or parked again, since the caller looked

export type SandboxTransition =
  | { readonly outcome: 'changed'; readonly state: SandboxState }
  | { readonly outcome: 'refused'; readonly reason: SandboxRefusal };

/** The reducer as a replaceable part: the simulator runs mutants of it. */
export type SandboxMachine = (state: SandboxState, event: SandboxEvent) => SandboxTransition;

/**
 * The lifecycle as a total, pure function: the one place where it is decided what this instance may do with a container of its own.
 * Invariants (property-tested): a reserved id is never promoted, tracked, adopted, forgotten or reserved again; an id in publication or
 * of a newer epoch is never forgotten; active and warm exclude each other; the marks outlive every phase.
 */
export function reduceSandbox(state: SandboxState, event: SandboxEvent): SandboxTransition {
  const changed = (part: Partial<SandboxState>): SandboxTransition => ({
    outcome: 'changed',
    state: { ...state, ...part },
  });
  const refused = (reason: SandboxRefusal): SandboxTransition => ({ outcome: 'refused', reason });
  const refusedOr = (reason: SandboxRefusal | null, part: Partial<SandboxState>): SandboxTransition =>
    reason === null ? changed(part) : refused(reason);
  const counted = { unownedSince: null, unowned: null, unownedIn: null };
  const gone: Partial<SandboxState> = { phase: 'absent', info: null, identity: null, epoch: 0, ...counted };

  switch (event.type) {
    case 'publish-began':
      return changed({ publishing: state.publishing + 1 });
    case 'publish-ended':
      return changed({
        publishing: Math.max(0, state.publishing - 1),
        ...(event.epoch === null ? {} : { epoch: event.epoch }),
      });
    case 'create-began':
      return changed({ creating: true });
    case 'create-ended':
      return changed({ creating: false });
    case 'track': {
      if (state.reserved) return refused('reserved');
      if (!fits(state, event.identity)) return refused('identity');
      // Also over a warm entry of the same id: one container never has two reapers (SB-19).
      const { info, identity, now, epoch } = event;
      return changed({ phase: 'active', info, identity, activeAt: now, epoch, ...counted });
    }
    case 'promote':
      if (state.reserved) return refused('reserved');
      if (state.phase !== 'warm') return refused('phase');
      if (state.info !== event.info) return refused('replaced');
      if (!fits(state, event.identity)) return refused('identity');
      return changed({ phase: 'active', identity: event.identity, activeAt: event.now });
    case 'touch':
      return state.phase === 'active' ? changed({ activeAt: event.now }) : refused('phase');
    case 'command-began':
      return changed({ commands: state.commands + 1, activeAt: event.now });
    case 'command-ended':
      return changed({ commands: Math.max(0, state.commands - 1), activeAt: event.now });
    case 'park':
      return state.phase === 'active' ? changed({ phase: 'warm', parkedAt: event.now }) : refused('phase');
    case 'reserve':
      if (state.reserved) return refused('reserved');
      return refusedOr(violated(state, event.condition), { reserved: true });
    case 'untrack':
      if (!state.reserved) return refused('condition');
      return refusedOr(violated(state, event.condition ?? { kind: 'tracked' }), gone);
    case 'teardown-ended':
      return changed({ reserved: false, epoch: state.phase === 'absent' ? 0 : event.epoch });
    case 'kept':
      return state.phase === 'absent' ? refused('phase') : changed({ epoch: event.epoch });
    case 'forget':
      if (state.phase === 'absent') return refused('phase');
      if (state.reserved) return refused('reserved');
      if (state.publishing > 0) return refused('publishing');
      if (event.epoch !== null && event.epoch !== state.epoch) return refused('epoch');
      return changed(gone);
    case 'seen':
      if (state.phase !== 'absent') return refused('phase');
      if (event.owned) return changed(counted);
      // Reset, not paused: a second lapse waits a whole grace again (SB-53), and so does another container of the same id. After the store
      // has forgotten everything, an owner that came since the last look has a whole grace to show itself again (SB-52).
      if (state.unowned !== null && isSameContainer(state.unowned, event.info) && state.unownedIn === event.memory)
        return changed({});
      return changed({ unownedSince: event.now, unowned: event.info, unownedIn: event.memory });
    case 'vanished':
      return changed(counted);
    case 'adopt':
      if (state.reserved) return refused('reserved');
      if (state.phase !== 'absent' || state.creating) return refused('phase');
      return changed({
        phase: 'warm',
        info: event.info,
        identity: null,
        parkedAt: event.now,
        activeAt: event.now,
        epoch: event.epoch,
        ...counted,
      });
  }
}

/** Do two descriptions speak of one container? An engine may make a new one each time that it is asked. */
export function isSameContainer(one: SandboxInfo, other: SandboxInfo): boolean {
  return one === other || (one.url === other.url && one.name === other.name && one.createdAt === other.createdAt);
}

/** May somebody of this identity have it? Unknown owners fit everybody (SB-09). */
export function fits(state: SandboxState, identity: SandboxIdentity): boolean {
  const known = state.phase === 'absent' ? null : state.identity;
  return known === null || (known.userId === identity.userId && known.threadId === identity.threadId);
}

/** Has an untracked container been without an owner for a whole lease? */
export function graceElapsed(state: SandboxState, now: number, graceMs: number): boolean {
  return state.unownedSince !== null && now - state.unownedSince >= graceMs;
}

/** Nothing is known and nothing is going on: the entry may leave the map. */
export function isQuiet(state: SandboxState): boolean {
  const { phase, reserved, publishing, commands, creating, unownedSince } = state;
  return phase === 'absent' && !reserved && publishing === 0 && commands === 0 && !creating && unownedSince === null;
}

function violated(state: SandboxState, condition: ReserveCondition): SandboxRefusal | null {
  switch (condition.kind) {
    case 'tracked':
      return state.phase === 'absent' ? 'phase' : null;
    case 'untracked':
      return state.phase === 'absent' ? null : 'phase';
    case 'idle':
      if (state.phase !== 'active') return 'phase';
      if (state.commands > 0) return 'busy';
      return state.activeAt <= condition.before ? null : 'condition';
    case 'warm':
    case 'expired':
      if (state.phase !== 'warm') return 'phase';
      if (state.info !== condition.info) return 'replaced';
      if (state.commands > 0) return 'busy';
      return condition.kind === 'warm' || state.parkedAt <= condition.before ? null : 'condition';
    case 'same':
      if (state.phase === 'absent') return 'phase';
      return state.info === condition.info ? null : 'replaced';
  }
}
