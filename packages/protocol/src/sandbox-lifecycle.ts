import type { Sandbox, SandboxProvider } from './sandbox.ts';
import type { SandboxIdentity } from './sandbox-backend.ts';

/** One sandbox for everybody who works for a thread: given back to its provider when the last holder has left. */
export interface SandboxLeases {
  /**
   * The thread's sandbox, held by `owner` until `leave`; asked again by the same owner, the same one, or its replacement when the
   * provider no longer knows it. An abort leaves nothing held. The owner's name is made by the server, never taken from a caller.
   *
   * @throws ReindeerError `conflict` when the owner holds another thread's sandbox, `aborted`, `over_capacity`, or as `acquire`
   */
  hold(input: SandboxIdentity & { readonly owner: string; readonly signal?: AbortSignal }): Promise<Sandbox>;
  /** The owner needs it no more; twice is once. Never throws because of the provider. */
  leave(owner: string): Promise<void>;
}

/** One sandbox that an instance keeps, for the operator's view. */
export interface SandboxSummary {
  readonly id: string;
  readonly phase: 'active' | 'warm';
  /** null = adopted, nobody of ours has used it yet. */
  readonly identity: SandboxIdentity | null;
  /** This instance is stopping it. */
  readonly stopping: boolean;
  readonly name: string;
  /** Wall-clock milliseconds; 0 = unknown. */
  readonly createdAt: number;
  /** Milliseconds since its last use, or since it was parked. */
  readonly idleMs: number;
  readonly commands: number;
}

/** Durations in classes, as Prometheus has them: `counts[i]` of them took at most `bounds[i]` seconds and more than `bounds[i - 1]`. */
export interface Histogram {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
  readonly count: number;
  /** Seconds. */
  readonly sum: number;
}

/** Counted since the provider was made; `active`, `warm` and `starting` are as of now. */
export interface SandboxStats {
  readonly active: number;
  readonly warm: number;
  readonly starting: number;
  /** Acquires that gave a sandbox, by the way in which they found it. */
  readonly acquires: Readonly<Record<'reuse' | 'reclaim' | 'discover' | 'create', Histogram>>;
  readonly failedAcquires: number;
  readonly adopted: number;
  /** Claims that the store refused or could not answer: something was not stopped, or not adopted. */
  readonly refusedClaims: number;
  readonly stopped: number;
  readonly failedStops: number;
  /** Sandboxes that a peer has taken over. */
  readonly forgotten: number;
}

/** `refused`: a peer owns it, the store cannot tell, it is being stopped already, or it was used meanwhile. Nothing was stopped. */
export type DestroyOutcome = 'destroyed' | 'refused' | 'unknown_id';

/**
 * A provider whose sandboxes live between turns: parked, reused, reaped, adopted. The single passes can be called by hand (an operator's
 * command, a test); `start` runs them by the clock.
 */
export interface SandboxLifecycle extends SandboxProvider {
  /** Adopts what an earlier process left, then renews, reconciles and reaps periodically. Idempotent. */
  start(): Promise<void>;
  /**
   * Stops one sandbox of this instance, in whatever phase. Rejects when the stop itself failed; the sandbox may then still run and is
   * adopted again by a later pass.
   *
   * @param options.unused only while it is warm and no command runs in it, judged in the moment of the reservation
   */
  destroy(sandboxId: string, options?: { readonly unused?: boolean }): Promise<DestroyOutcome>;
  /** Renews the lease of every active and warm sandbox, whatever the idle timeout. Never rejects. */
  renew(): Promise<void>;
  /** Adopts running containers that nobody owns. Never rejects. */
  reconcile(): Promise<void>;
  /** Stops what is idle or warm for too long; does nothing with an idle timeout of 0. Never rejects. */
  reap(): Promise<void>;
  /** What is kept right now. No I/O. */
  list(): readonly SandboxSummary[];
  /** No I/O. */
  stats(): SandboxStats;
  /** Bytes of memory that the sandboxes of `list` use, by id; one that cannot be asked is left out. Bounded, never rejects. */
  memory(): Promise<ReadonlyMap<string, number>>;
}
