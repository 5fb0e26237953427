import { testSurroundings, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { checkLifecycleSettings, DEFAULT_LIFECYCLE_SETTINGS, graceMs } from '../settings.ts';
import { newOwnerId, openOwnershipStore } from './open.ts';
import { leaseTtlMs, resolveOwnership } from './settings.ts';

const bridge = { type: 'redis', redis_url: 'redis://bridge:6379/0' };

test('a stream bridge in Redis means ownership in the same Redis', verifies('SEED-001-34', 'SO-21'), () => {
  expect(resolveOwnership({ streamBridge: bridge, environment: {} })).toEqual({
    type: 'redis',
    redisUrl: 'redis://bridge:6379/0',
    keyPrefix: 'deerflow:sandbox:owner',
    renewalIntervalMs: 30_000,
    ttlMultiplier: 4,
  });
  expect(resolveOwnership({ streamBridge: { type: 'memory' }, environment: {} })).toMatchObject({
    type: 'memory',
    redisUrl: null,
  });
});

test('an address in the environment means Redis; what the file says wins over everything', verifies('SO-21'), () => {
  const own = 'DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL';
  const other = 'DEER_FLOW_STREAM_BRIDGE_REDIS_URL';
  const urlOf = (environment: Record<string, string>, rest = {}) => resolveOwnership({ environment, ...rest }).redisUrl;
  expect(urlOf({})).toBeNull();
  expect(urlOf({ [own]: 'redis://own' })).toBe('redis://own');
  expect(urlOf({ [other]: 'redis://bridge' })).toBe('redis://bridge');
  expect(urlOf({ [own]: 'redis://own', [other]: 'redis://bridge' })).toBe('redis://own');
  expect(urlOf({ [own]: 'redis://own' }, { streamBridge: bridge })).toBe(bridge.redis_url);
  expect(urlOf({ REDIS_URL: 'redis://plain' })).toBeNull();
  expect(urlOf({ REDIS_URL: 'redis://plain' }, { ownership: { type: 'redis' } })).toBe('redis://plain');
  expect(urlOf({}, { ownership: { type: 'redis' } })).toBe('redis://localhost:6379/0');
  expect(urlOf({ REDIS_URL: 'redis://plain' }, { ownership: { type: 'redis', redis_url: '' } })).toBe('redis://plain');
  expect(urlOf({ [own]: 'redis://own' }, { ownership: { type: 'memory' }, streamBridge: bridge })).toBeNull();
  expect(urlOf({ [own]: 'redis://own' }, { ownership: { type: 'redis', redis_url: 'redis://file' } })).toBe(
    'redis://file',
  );
});

test(
  'a database that instances share keeps the ownership too, unless there is a Redis for it',
  verifies('SO-21'),
  () => {
    const typeOf = (part: object) => resolveOwnership({ environment: {}, sharedDatabase: true, ...part }).type;
    expect(typeOf({})).toBe('postgres');
    expect(resolveOwnership({ environment: {}, sharedDatabase: true }).redisUrl).toBeNull();
    expect(typeOf({ sharedDatabase: false })).toBe('memory');
    expect(typeOf({ streamBridge: bridge })).toBe('redis');
    expect(typeOf({ environment: { DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL: 'redis://own' } })).toBe('redis');
    expect(typeOf({ ownership: { type: 'postgres' }, streamBridge: bridge })).toBe('postgres');
    const unshared = () => resolveOwnership({ ownership: { type: 'postgres' }, environment: {} });
    expect(unshared).toThrow('database.backend: postgres');
  },
);

test('what cannot be kept is refused when it is read', verifies('SO-17', 'SO-21'), () => {
  const resolve = (ownership: object) => () => resolveOwnership({ ownership, environment: {} });
  expect(resolve({ type: 'etcd' })).toThrow('none of: memory, redis, postgres');
  expect(resolve({ ttl_multiplier: 1.9 })).toThrow('at least 2');
  expect(resolve({ ttl_multiplier: Number.NaN })).toThrow('at least 2');
  expect(resolve({ renewal_interval_seconds: 0 })).toThrow('above 0');
  // A timer holds no more than some days, and would run all the time.
  expect(resolve({ renewal_interval_seconds: 1e9 })).toThrow('renewal_interval_seconds');
  expect(resolve({ ttl_multiplier: 1e9 })).toThrow('ttl_multiplier');
  expect(resolve({ key_prefix: '' })).toThrow('key_prefix');
  expect(() => checkLifecycleSettings({ ...DEFAULT_LIFECYCLE_SETTINGS, ttlMultiplier: 1 })).toThrow('at least 2');
  expect(() => checkLifecycleSettings({ ...DEFAULT_LIFECYCLE_SETTINGS, replicas: 0 })).toThrow('replicas');
  expect(() => checkLifecycleSettings({ ...DEFAULT_LIFECYCLE_SETTINGS, idleTimeoutMs: -1 })).toThrow('idle_timeout');
});

test('a lease lives for interval times multiplier, whatever the idle timeout', verifies('SO-17'), () => {
  const settings = resolveOwnership({
    ownership: { renewal_interval_seconds: 7, ttl_multiplier: 3 },
    environment: {},
  });
  expect(leaseTtlMs(settings)).toBe(21_000);
  for (const idleTimeoutMs of [0, 1, 1e9])
    expect(graceMs({ ...DEFAULT_LIFECYCLE_SETTINGS, idleTimeoutMs })).toBe(120_000);
});

test('two providers of one process are two owners', verifies('SO-19'), () => {
  const surroundings = testSurroundings();
  const ids = Array.from({ length: 100 }, () => newOwnerId(surroundings));
  expect(new Set(ids).size).toBe(100);
  for (const id of ids) expect(id).toMatch(/^.+:[0-9a-f]{32}$/);
});

test('ownership in memory says at the start that it sees nobody else', verifies('SO-20'), async () => {
  const surroundings = testSurroundings();
  const store = await openOwnershipStore(resolveOwnership({ environment: {} }), surroundings);
  expect(store.seesPeers).toBe(false);
  expect(surroundings.logger.lines.filter((line) => line.level === 'warn')).toHaveLength(1);
});
