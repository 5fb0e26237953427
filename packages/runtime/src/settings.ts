import type { CrashPolicy } from '@reindeer/protocol';

/** All times in milliseconds. */
export interface RuntimeSettings {
  /** Identity of this instance in `owner` columns: stable over restarts, so that a restart knows its predecessor's runs. */
  readonly instanceId: string;
  /** Owners whose processes are known to have ended: claimed at the start, whatever their leases say. Default: the own instance id. */
  readonly deadOwners?: readonly string[];
  /** How long a lease is good for; a holder that cannot confirm it by then stops itself. */
  readonly leaseMs: number;
  /** What a peer waits beyond the lease before it takes over: the budget for clock differences. */
  readonly graceMs: number;
  readonly beatMs: number;
  readonly sweepMs: number;
  /** Attempts of one run, the first included, before an orphan ends as `error`. */
  readonly maxAttempts: number;
  /** For runs whose creator did not choose. */
  readonly crashPolicy: CrashPolicy;
  /** Runs and reservations held at once by this process; more are refused as `over_capacity`. */
  readonly maxActiveRuns: number;
  /** Runs that may wait on one thread (`multitask_strategy: enqueue`); one more is refused as `queue_full`. */
  readonly maxQueuedRuns: number;
  readonly recursionLimit: number;
  readonly maxRecursionLimit: number;
  /** Longest life of one attempt; null = no limit. */
  readonly runTimeoutMs: number | null;
  /** How long a stopped run waits for its tools to end before it is finalized all the same. */
  readonly stopWaitMs: number;
  /** How long `cancel` with `wait` waits. */
  readonly cancelWaitMs: number;
  /** Tries of a durable write whose answer was lost (GW-22), and the first pause between two; it doubles. */
  readonly writeTries: number;
  readonly writeBackoffMs: number;
  /** A run that changed files in outputs and presented none of them ends as an error (FILE-4). */
  readonly requirePresented: boolean;
  /** Token frames are coalesced over this time (D3). */
  readonly tokenFlushMs: number;
  /** How often a reader looks into the log without a hint: runs of this process, runs of others. */
  readonly pollLocalMs: number;
  readonly pollRemoteMs: number;
  /** Serialized states kept for readers. */
  readonly valuesCacheBytes: number;
}

export const DEFAULT_SETTINGS: RuntimeSettings = {
  instanceId: 'local',
  leaseMs: 12_000,
  graceMs: 3_000,
  beatMs: 4_000,
  sweepMs: 2_000,
  maxAttempts: 3,
  crashPolicy: 'resume',
  maxActiveRuns: 1_000,
  maxQueuedRuns: 20,
  recursionLimit: 100,
  maxRecursionLimit: 1_000,
  runTimeoutMs: null,
  stopWaitMs: 30_000,
  cancelWaitMs: 30_000,
  writeTries: 3,
  writeBackoffMs: 100,
  requirePresented: true,
  tokenFlushMs: 30,
  pollLocalMs: 5_000,
  pollRemoteMs: 500,
  valuesCacheBytes: 32 * 1024 * 1024,
};
