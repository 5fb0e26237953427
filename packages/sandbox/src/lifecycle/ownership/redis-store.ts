import {
  type ClaimOptions,
  decodeOwnership,
  encodeOwnership,
  type OwnershipRenewal,
  type OwnershipStore,
  ReindeerError,
  type Surroundings,
} from '@reindeer/protocol';

export interface RedisOwnershipOptions {
  /** `redis://…` or `rediss://…`. May carry a password: never logged. */
  readonly url: string;
  readonly ownerId: string;
  /** Put before each sandbox id, with a colon between. */
  readonly keyPrefix: string;
  /** Time to live of a lease in milliseconds; counted by the server, so that clocks need not agree. */
  readonly ttlMs: number;
  readonly surroundings: Surroundings;
}

/** Milliseconds within which one operation is answered, or the store counts as out of reach. */
export const REDIS_OPERATION_MS = 5_000;
const MAX_QUEUED = 10_000;
const MAX_RECONNECT_MS = 2_000;

/*
 * One script per operation: look and write are one step on the server (SO-22). KEYS[1] is the lease; ARGV: `own:<me>`, `del:<me>`,
 * time to live in milliseconds. The rules are those of `reduceOwnership`; the contract suite compares the two.
 *
 * What the server remembers since is named by a key that goes when everything goes, and by the life of the server: one that starts again with
 * an older copy has the key and lacks the leases that came after the copy. A server that does not tell its life is named by the key alone.
 */
const MEMORY = `local function memory(key)
  local info = redis.pcall('INFO', 'server')
  local life = type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
  return (redis.call('GET', key) or '') .. '@' .. life
end
`;
const SCRIPTS = {
  take: `local v = redis.call('GET', KEYS[1])
if v and string.sub(v, 1, 4) == 'del:' then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1`,
  claim: `local v = redis.call('GET', KEYS[1])
if v and v ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1`,
  claimForDestroy: `local v = redis.call('GET', KEYS[1])
if v and v ~= ARGV[1] and v ~= ARGV[2] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`,
  claimWithin: `${MEMORY}if memory(KEYS[2]) ~= ARGV[4] then return 0 end
local v = redis.call('GET', KEYS[1])
if v and v ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1`,
  memory: `${MEMORY}redis.call('SET', KEYS[1], ARGV[4], 'NX')
return memory(KEYS[1])`,
  renew: `local v = redis.call('GET', KEYS[1])
if not v then return 0 end
if v ~= ARGV[1] then return 2 end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`,
  release: `local v = redis.call('GET', KEYS[1])
if v == ARGV[1] or v == ARGV[2] then redis.call('DEL', KEYS[1]) end
return 1`,
} as const;

/** The few methods of the client that are used. */
interface RedisConnection {
  readonly isReady: boolean;
  eval(script: string, options: { keys: string[]; arguments: string[] }): Promise<unknown>;
  get(key: string): Promise<unknown>;
  close(): Promise<unknown>;
  destroy(): void;
}

/**
 * Opens the store. The connection is made again in the background whenever it breaks; until then each operation rejects with
 * `store_unavailable`. A server that is not there yet is no error here: it is *unknown*, like one that goes away later.
 *
 * @throws ReindeerError `configuration` when the `redis` package is not installed or the address is none
 */
export async function openRedisOwnership(options: RedisOwnershipOptions): Promise<OwnershipStore> {
  const { logger } = options.surroundings;
  const { createClient } = await import('redis').catch((cause: unknown) => {
    throw new ReindeerError(
      'configuration',
      'Sandbox ownership in Redis needs the package "redis", which is not installed. Run: npm install redis@6.3.1',
      { cause },
    );
  });
  const client = (() => {
    try {
      return createClient({
        url: options.url,
        // Nothing is kept for later: an operation that cannot be sent now is unknown now.
        disableOfflineQueue: true,
        commandsQueueMaxLength: MAX_QUEUED,
        socket: {
          connectTimeout: REDIS_OPERATION_MS,
          reconnectStrategy: (retries) => Math.min(MAX_RECONNECT_MS, 50 * 2 ** Math.min(retries, 6)),
        },
      });
    } catch (cause) {
      throw new ReindeerError('configuration', 'The address of the Redis server for sandbox ownership is none.', {
        cause,
      });
    }
  })();
  let down = false;
  client.on('error', (error: unknown) => {
    if (down) return;
    down = true;
    logger.warn('The ownership store is out of reach', { cause: error instanceof Error ? error.name : 'unknown' });
  });
  client.on('ready', () => {
    if (down) logger.info('The ownership store answers again');
    down = false;
  });
  const store = new RedisOwnershipStore(client as RedisConnection, options);
  const connected = client.connect().then(
    () => {},
    () => {},
  );
  await store.bounded(connected).catch(() => {});
  return store;
}

/** Ownership that all instances of one Redis see. */
class RedisOwnershipStore implements OwnershipStore {
  readonly ownerId: string;
  readonly seesPeers = true;
  readonly #client: RedisConnection;
  readonly #options: RedisOwnershipOptions;
  readonly #values: readonly [string, string, string];
  #closing: Promise<void> | null = null;

  constructor(client: RedisConnection, options: RedisOwnershipOptions) {
    this.#client = client;
    this.#options = options;
    this.ownerId = options.ownerId;
    const owner = options.ownerId;
    this.#values = [
      encodeOwnership({ state: 'own', owner }),
      encodeOwnership({ state: 'del', owner }),
      String(Math.ceil(options.ttlMs)),
    ];
  }

  async take(sandboxId: string): Promise<boolean> {
    return (await this.#run(SCRIPTS.take, sandboxId)) === 1;
  }

  async claim(sandboxId: string, options: ClaimOptions = {}): Promise<boolean> {
    if (options.forDestroy !== true && options.memory !== undefined)
      return (
        Number(await this.#eval(SCRIPTS.claimWithin, [this.#key(sandboxId), this.#memoryKey], options.memory)) === 1
      );
    return (await this.#run(options.forDestroy === true ? SCRIPTS.claimForDestroy : SCRIPTS.claim, sandboxId)) === 1;
  }

  async renew(sandboxId: string): Promise<OwnershipRenewal> {
    const answer = await this.#run(SCRIPTS.renew, sandboxId);
    return answer === 1 ? 'renewed' : answer === 0 ? 'lapsed' : 'lost';
  }

  async release(sandboxId: string): Promise<void> {
    await this.#run(SCRIPTS.release, sandboxId);
  }

  async owner(sandboxId: string): Promise<string | null> {
    const text = await this.#asked(() => this.#client.get(this.#key(sandboxId)));
    if (text === null) return null;
    // A foreign value is somebody's, whoever that is: nothing may be adopted over it.
    return decodeOwnership(String(text))?.owner ?? String(text);
  }

  async memory(): Promise<string> {
    return String(await this.#eval(SCRIPTS.memory, [this.#memoryKey], this.#options.surroundings.random.uuid()));
  }

  close(): Promise<void> {
    this.#closing ??= (async () => {
      try {
        if (this.#client.isReady) await this.bounded(this.#client.close());
      } catch {
        // It could not say goodbye; the connection is dropped below.
      }
      try {
        this.#client.destroy();
      } catch {
        // Closed already.
      }
    })();
    return this.#closing;
  }

  /** Waits for `promise`, at most as long as one operation may take. */
  async bounded<T>(promise: Promise<T>): Promise<T> {
    const over = new AbortController();
    promise.catch(() => {});
    try {
      return await Promise.race([
        promise,
        this.#options.surroundings.clock.sleep(REDIS_OPERATION_MS, over.signal).then(() => {
          throw new Error('no answer in time');
        }),
      ]);
    } finally {
      over.abort();
    }
  }

  async #run(script: string, sandboxId: string): Promise<number> {
    return Number(await this.#eval(script, [this.#key(sandboxId)]));
  }

  #eval(script: string, keys: string[], ...more: readonly string[]): Promise<unknown> {
    return this.#asked(() => this.#client.eval(script, { keys, arguments: [...this.#values, ...more] }));
  }

  /** No error of the driver leaves this file, and none becomes a "no" (SO-16). */
  async #asked(send: () => Promise<unknown>): Promise<unknown> {
    if (this.#closing !== null) throw unavailable('is closed');
    try {
      return await this.bounded(send());
    } catch (cause) {
      throw unavailable('did not answer', cause);
    }
  }

  /** No sandbox's key: those have a colon after the prefix. */
  get #memoryKey(): string {
    return `${this.#options.keyPrefix}.memory`;
  }

  #key(sandboxId: string): string {
    return `${this.#options.keyPrefix}:${sandboxId}`;
  }
}

function unavailable(what: string, cause?: unknown): ReindeerError {
  return new ReindeerError('store_unavailable', `The ownership store of the sandboxes (Redis) ${what}.`, {
    retryable: true,
    ...(cause === undefined ? {} : { cause }),
  });
}
