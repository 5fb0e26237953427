import { ReindeerError } from '@reindeer/protocol';
import { leaseTtlMs } from './ownership/settings.ts';

/** What happens when as many sandboxes as allowed are in use and none of the warm ones can be given up. */
export type OverflowPolicy = 'wait' | 'reject' | 'burst';

/** All times in milliseconds. */
export interface LifecycleSettings {
  /** Idle and warm sandboxes are stopped after this; 0 = never. */
  readonly idleTimeoutMs: number;
  /** How many containers of this instance there should be, active and warm together. */
  readonly replicas: number;
  /** Past `replicas`: wait for a place, refuse, or go over the limit by at most `burstLimit`. */
  readonly overflow: OverflowPolicy;
  /** Containers above `replicas` under `burst`; 0 = no bound. */
  readonly burstLimit: number;
  /** Longest wait for a place. */
  readonly acquireTimeoutMs: number;
  /**
   * A new container is only started while this machine has so many bytes of memory available for each one that is being started; past it
   * warm ones are given up, then `wait` waits and the other policies refuse. 0 = memory is not looked at.
   */
  readonly memoryReserveBytes: number;
  readonly renewalIntervalMs: number;
  readonly ttlMultiplier: number;
  /** Between two passes of reconciliation and reaping. */
  readonly sweepMs: number;
  /** How long a stop waits for its heartbeat to leave; more than two operations of a store that times out (SB-32). */
  readonly teardownWaitMs: number;
  /** How long a new container may take until a command runs in it. */
  readonly readyMs: number;
  /** The same for a container that was found running. */
  readonly discoveredReadyMs: number;
  /** How long `shutdown` waits for acquires that run. */
  readonly drainMs: number;
}

/** A store may take this long to answer or to fail. */
export const STORE_OPERATION_MS = 5_000;

export const DEFAULT_LIFECYCLE_SETTINGS: LifecycleSettings = {
  idleTimeoutMs: 600_000,
  replicas: 3,
  // The number of containers is a soft bound (SB-45): a run is rather served than refused.
  overflow: 'burst',
  burstLimit: 0,
  acquireTimeoutMs: 30_000,
  memoryReserveBytes: 0,
  renewalIntervalMs: 30_000,
  ttlMultiplier: 4,
  sweepMs: 60_000,
  teardownWaitMs: 12_000,
  readyMs: 60_000,
  discoveredReadyMs: 5_000,
  drainMs: 15_000,
};

/** What may change while the provider lives: all that no lease and no peer depends on. */
export const LIVE_LIFECYCLE_SETTINGS = [
  'idleTimeoutMs',
  'replicas',
  'overflow',
  'burstLimit',
  'acquireTimeoutMs',
  'memoryReserveBytes',
] as const;

/** Throws `configuration` for settings that cannot be kept. */
export function checkLifecycleSettings(settings: LifecycleSettings): void {
  const fault = (text: string) => new ReindeerError('configuration', `sandbox: ${text}`);
  const { replicas, burstLimit, idleTimeoutMs, ttlMultiplier, renewalIntervalMs, memoryReserveBytes } = settings;
  if (!(Number.isSafeInteger(replicas) && replicas > 0)) throw fault('replicas must be a whole number above 0.');
  if (!(Number.isSafeInteger(burstLimit) && burstLimit >= 0))
    throw fault('burst_limit must be a whole number, 0 or more.');
  if (!(Number.isSafeInteger(memoryReserveBytes) && memoryReserveBytes >= 0))
    throw fault('memory_reserve must be a whole number of bytes, 0 or more.');
  if (!(Number.isFinite(idleTimeoutMs) && idleTimeoutMs >= 0)) throw fault('idle_timeout must be 0 or more.');
  if (!(ttlMultiplier >= 2)) throw fault('ownership.ttl_multiplier must be at least 2.');
  for (const name of ['sweepMs', 'teardownWaitMs', 'readyMs', 'discoveredReadyMs', 'acquireTimeoutMs'] as const)
    if (!(Number.isFinite(settings[name]) && settings[name] > 0)) throw fault(`${name} must be above 0.`);
  if (!(Number.isFinite(renewalIntervalMs) && renewalIntervalMs > 0))
    throw fault('ownership.renewal_interval_seconds must be above 0.');
}

/** The grace of an adoption: one whole lease. */
export function graceMs(settings: LifecycleSettings): number {
  return leaseTtlMs(settings);
}
