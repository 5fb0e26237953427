import { ReindeerError } from '@reindeer/protocol';

/** `sandbox.ownership` as the operator wrote it; the keys are those of the file. */
export interface OwnershipConfiguration {
  readonly type?: string | undefined;
  readonly redis_url?: string | undefined;
  readonly key_prefix?: string | undefined;
  /** Seconds. */
  readonly renewal_interval_seconds?: number | undefined;
  readonly ttl_multiplier?: number | undefined;
}

/** What the choice of an ownership store depends on. */
export interface OwnershipSources {
  readonly ownership?: OwnershipConfiguration | undefined;
  /** The `stream_bridge` section: several instances that share a stream in Redis share their sandboxes too. */
  readonly streamBridge?: { readonly type?: string | undefined; readonly redis_url?: string | undefined } | undefined;
  /** The database is one that several instances may share. */
  readonly sharedDatabase?: boolean;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Where it is kept who may stop a sandbox. */
export const OWNERSHIP_TYPES = ['memory', 'redis', 'postgres'] as const;
export type OwnershipType = (typeof OWNERSHIP_TYPES)[number];

export interface OwnershipSettings {
  readonly type: OwnershipType;
  /** Only for `redis`. */
  readonly redisUrl: string | null;
  readonly keyPrefix: string;
  readonly renewalIntervalMs: number;
  readonly ttlMultiplier: number;
}

const OWNERSHIP_URL = 'DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL';
const BRIDGE_URL = 'DEER_FLOW_STREAM_BRIDGE_REDIS_URL';

/** A day: timers hold no more than some days, and a crash is noticed only after a whole lease. */
const MAX_INTERVAL_SECONDS = 86_400;
const MAX_MULTIPLIER = 1_000;

/**
 * Chooses the ownership store: what the file says wins; else a stream bridge in Redis, or one of its addresses in
 * the environment, means Redis; else a shared database keeps it; else memory. So several instances need no setting of their own.
 *
 * @throws ReindeerError `configuration` for an unknown type (SO-21), an interval that is not above 0, a multiplier below 2 (SO-17)
 */
export function resolveOwnership(sources: OwnershipSources): OwnershipSettings {
  const { ownership = {}, streamBridge, environment } = sources;
  const set = (name: string): string | undefined => environment[name]?.trim() || undefined;
  const bridged = streamBridge?.type === 'redis';
  const redis = bridged || set(OWNERSHIP_URL) !== undefined || set(BRIDGE_URL) !== undefined;
  const inferred = redis ? 'redis' : sources.sharedDatabase === true ? 'postgres' : 'memory';
  const type = OWNERSHIP_TYPES.find((known) => known === (ownership.type ?? inferred));
  if (type === undefined) {
    throw new ReindeerError(
      'configuration',
      `sandbox.ownership.type: "${ownership.type}" is none of: ${OWNERSHIP_TYPES.join(', ')}.`,
    );
  }
  if (type === 'postgres' && sources.sharedDatabase !== true)
    throw new ReindeerError(
      'configuration',
      'sandbox.ownership.type is postgres, but the database is SQLite. Set database.backend: postgres and database.postgres_url, or remove the key.',
    );
  const interval = ownership.renewal_interval_seconds ?? 30;
  if (!(interval > 0 && interval <= MAX_INTERVAL_SECONDS)) {
    throw new ReindeerError(
      'configuration',
      `sandbox.ownership.renewal_interval_seconds must be above 0, and at most ${MAX_INTERVAL_SECONDS}.`,
    );
  }
  const multiplier = ownership.ttl_multiplier ?? 4;
  if (!(Number.isFinite(multiplier) && multiplier >= 2)) {
    throw new ReindeerError(
      'configuration',
      'sandbox.ownership.ttl_multiplier must be at least 2, or one missed renewal would lose a live sandbox.',
    );
  }
  if (multiplier > MAX_MULTIPLIER)
    throw new ReindeerError('configuration', `sandbox.ownership.ttl_multiplier must be at most ${MAX_MULTIPLIER}.`);
  if (ownership.key_prefix === '')
    throw new ReindeerError(
      'configuration',
      'sandbox.ownership.key_prefix must not be empty; remove it for the default.',
    );
  const fromBridge = bridged ? streamBridge?.redis_url : undefined;
  const redisUrl =
    // Empty as a variable that is not set.
    (ownership.redis_url || undefined) ??
    (fromBridge || undefined) ??
    set(OWNERSHIP_URL) ??
    set(BRIDGE_URL) ??
    set('REDIS_URL') ??
    'redis://localhost:6379/0';
  return {
    type,
    redisUrl: type === 'redis' ? redisUrl : null,
    keyPrefix: ownership.key_prefix ?? 'deerflow:sandbox:owner',
    renewalIntervalMs: interval * 1000,
    ttlMultiplier: multiplier,
  };
}

/** Milliseconds that a lease lives without a renewal; depends on nothing else, least of all on the idle timeout (SO-17). */
export function leaseTtlMs(settings: Pick<OwnershipSettings, 'renewalIntervalMs' | 'ttlMultiplier'>): number {
  return settings.renewalIntervalMs * settings.ttlMultiplier;
}
