/** The outside world as seen by decisions: time, randomness, and named pause points. Passed in, never imported. */

export interface Clock {
  /** Wall-clock milliseconds since 1970 (UTC). Only for values that are stored or compared with stored values. */
  now(): number;
  /** Monotonic milliseconds; for durations and deadlines inside one process (ND-04). */
  monotonic(): number;
  /** Resolves after `milliseconds`; rejects with the abort reason when `signal` fires first, leaving no timer behind. */
  sleep(milliseconds: number, signal?: AbortSignal): Promise<void>;
}

export interface Random {
  uuid(): string;
  /** A number in [0, 1). */
  next(): number;
}

/**
 * Named pause points for deterministic race tests. In the product every point returns at once (`undefined`); a test
 * returns a promise and so holds one interleaving open. Call as `await probe.at('run.before-finalize', {runId})`.
 */
export interface Probe {
  at(point: string, detail?: Readonly<Record<string, unknown>>): Promise<void> | undefined;
}

export const NO_PROBE: Probe = { at: () => undefined };

/** Structured log; an implementation masks secrets. Never pass message contents, only ids, counts and durations. */
export interface Logger {
  debug(message: string, fields?: Readonly<Record<string, unknown>>): void;
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

export const NO_LOG: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

export interface Surroundings {
  readonly clock: Clock;
  readonly random: Random;
  readonly probe: Probe;
  readonly logger: Logger;
}
