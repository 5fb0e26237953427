import {
  type ClaimOptions,
  type Clock,
  type OwnershipOperation,
  type OwnershipRenewal,
  type OwnershipStep,
  type OwnershipStore,
  type OwnershipValue,
  reduceOwnership,
} from '@reindeer/protocol';

interface Lease {
  readonly value: NonNullable<OwnershipValue>;
  /** Monotonic milliseconds. */
  readonly expiresAt: number;
}

/** Expired leases are looked for when the map has grown by this many, so that ids that nobody asks about do not stay. */
const SWEEP_EVERY = 256;

/** The leases behind one or several memory stores: what a server would hold. */
export class MemoryLeases {
  readonly #leases = new Map<string, Lease>();
  readonly #clock: Clock;
  readonly #ttlMs: number;
  #sweepAt = SWEEP_EVERY;
  #forgotten = 0;

  /** @param ttlMs time to live of a lease in milliseconds */
  constructor(clock: Clock, ttlMs: number) {
    this.#clock = clock;
    this.#ttlMs = ttlMs;
  }

  /** One atomic step: no `await` between look and write (SO-22). */
  step(id: string, operation: OwnershipOperation, me: string): OwnershipStep {
    const now = this.#clock.monotonic();
    const step = reduceOwnership(this.value(id), operation, me);
    if (step.change === 'write' && step.value !== null) {
      this.#leases.set(id, { value: step.value, expiresAt: now + this.#ttlMs });
      if (this.#leases.size >= this.#sweepAt) this.#sweep(now);
    }
    if (step.change === 'delete') this.#leases.delete(id);
    return step;
  }

  value(id: string): OwnershipValue {
    const lease = this.#leases.get(id);
    if (lease === undefined) return null;
    if (lease.expiresAt > this.#clock.monotonic()) return lease.value;
    this.#leases.delete(id);
    return null;
  }

  /** Forgets everything, as a server does that restarts without a copy on disk. */
  clear(): void {
    this.#leases.clear();
    this.#forgotten += 1;
  }

  /** Another name after each `clear`. */
  get memory(): string {
    return String(this.#forgotten);
  }

  get size(): number {
    return this.#leases.size;
  }

  #sweep(now: number): void {
    for (const [id, lease] of this.#leases) if (lease.expiresAt <= now) this.#leases.delete(id);
    this.#sweepAt = this.#leases.size + SWEEP_EVERY;
  }
}

export interface MemoryOwnershipOptions {
  readonly ownerId: string;
  readonly clock: Clock;
  readonly ttlMs: number;
  /** Shared leases: the store then sees those who share them. Without it nobody else is seen (SO-20). */
  readonly leases?: MemoryLeases;
}

/** Ownership inside one process. With it there must be one instance per engine and container prefix. */
export class MemoryOwnershipStore implements OwnershipStore {
  readonly ownerId: string;
  readonly seesPeers: boolean;
  readonly #leases: MemoryLeases;

  constructor(options: MemoryOwnershipOptions) {
    this.ownerId = options.ownerId;
    this.seesPeers = options.leases !== undefined;
    this.#leases = options.leases ?? new MemoryLeases(options.clock, options.ttlMs);
  }

  async take(sandboxId: string): Promise<boolean> {
    return this.#leases.step(sandboxId, 'take', this.ownerId).answer === true;
  }

  async claim(sandboxId: string, options: ClaimOptions = {}): Promise<boolean> {
    if (options.memory !== undefined && options.memory !== this.#leases.memory) return false;
    const operation = options.forDestroy === true ? 'claim-for-destroy' : 'claim';
    return this.#leases.step(sandboxId, operation, this.ownerId).answer === true;
  }

  async renew(sandboxId: string): Promise<OwnershipRenewal> {
    const { answer } = this.#leases.step(sandboxId, 'renew', this.ownerId);
    return answer === 'renewed' || answer === 'lapsed' ? answer : 'lost';
  }

  async release(sandboxId: string): Promise<void> {
    this.#leases.step(sandboxId, 'release', this.ownerId);
  }

  async owner(sandboxId: string): Promise<string | null> {
    return this.#leases.value(sandboxId)?.owner ?? null;
  }

  async memory(): Promise<string> {
    return this.#leases.memory;
  }

  async close(): Promise<void> {}
}
