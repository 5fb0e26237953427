import { hostname } from 'node:os';
import type { OwnershipStore, Surroundings } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { MemoryOwnershipStore } from './memory-store.ts';
import { openRedisOwnership } from './redis-store.ts';
import { leaseTtlMs, type OwnershipSettings } from './settings.ts';

/** An owner id of its own for each provider, also for two in one process (SO-19). */
export function newOwnerId(surroundings: Pick<Surroundings, 'random'>): string {
  return `${hostname()}:${surroundings.random.uuid().replaceAll('-', '')}`;
}

/**
 * Opens an ownership store of this package, `memory` or `redis`, under a new owner id; the one in Postgres is the database's.
 *
 * @throws ReindeerError `configuration` when the driver of the store is not installed
 */
export async function openOwnershipStore(
  settings: OwnershipSettings,
  surroundings: Surroundings,
): Promise<OwnershipStore> {
  const ownerId = newOwnerId(surroundings);
  const ttlMs = leaseTtlMs(settings);
  if (settings.type === 'memory') {
    surroundings.logger.warn(
      'Sandbox ownership is kept in memory: one instance only per engine and container prefix. For several use Postgres as the database, or set sandbox.ownership.type: redis.',
    );
    return new MemoryOwnershipStore({ ownerId, ttlMs, clock: surroundings.clock });
  }
  if (settings.redisUrl === null) throw new ReindeerError('configuration', 'sandbox.ownership.redis_url is missing.');
  return openRedisOwnership({ url: settings.redisUrl, ownerId, ttlMs, keyPrefix: settings.keyPrefix, surroundings });
}
