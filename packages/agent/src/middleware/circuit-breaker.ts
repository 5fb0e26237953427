import type { Clock } from '@reindeer/protocol';

export interface CircuitBreakerSettings {
  /** Failures in a row that open the circuit; 0 = never. */
  readonly failureThreshold: number;
  /** How long it stays open before one call may try. */
  readonly recoveryTimeoutMs: number;
}

export const DEFAULT_CIRCUIT_BREAKER: CircuitBreakerSettings = { failureThreshold: 5, recoveryTimeoutMs: 60_000 };

/** How a call ended, as far as the circuit cares. `neutral`: it says nothing of the provider's health. */
export type CallEnd = 'success' | 'failure' | 'neutral';

/** A call that may start. */
export interface Pass {
  readonly probe: boolean;
}

/**
 * Keeps calls away from a provider that is down (MW-8c). Per model:
 *
 *   closed --(`failureThreshold` failures in a row)--> open --(`recoveryTimeoutMs`)--> half-open
 *   half-open lets one probe through: success → closed, failure → open again, neutral → half-open, free for the next probe
 *
 * Only failures that a healthy provider would not give count. Kept in memory: it is about this process's view of the provider.
 */
export class CircuitBreaker {
  readonly #settings: CircuitBreakerSettings;
  readonly #clock: Clock;
  #failures = 0;
  #openedAt: number | null = null;
  #probing = false;

  constructor(settings: CircuitBreakerSettings, clock: Clock) {
    this.#settings = settings;
    this.#clock = clock;
  }

  /** May a call start now? null = no. A yes must be followed by one `ended` with what it gave. */
  enter(): Pass | null {
    if (this.#openedAt === null) return { probe: false };
    if (this.#probing || this.remainingMs() > 0) return null;
    this.#probing = true;
    return { probe: true };
  }

  /** Milliseconds until a probe may start; 0 = now. */
  remainingMs(): number {
    if (this.#openedAt === null) return 0;
    return Math.max(0, this.#openedAt + this.#settings.recoveryTimeoutMs - this.#clock.monotonic());
  }

  ended({ probe }: Pass, how: CallEnd): void {
    // A call from before the circuit opened decides nothing any more: the probe does, and it is the only one.
    if (!probe && this.#openedAt !== null) return;
    if (probe) this.#probing = false;
    if (how === 'success') {
      this.#failures = 0;
      this.#openedAt = null;
      return;
    }
    if (how === 'neutral') return;
    this.#failures++;
    const { failureThreshold } = this.#settings;
    if (probe || (failureThreshold > 0 && this.#failures >= failureThreshold)) this.#openedAt = this.#clock.monotonic();
  }
}
