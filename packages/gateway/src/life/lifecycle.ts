import { type Clock, type Logger, ReindeerError } from '@reindeer/protocol';

export interface Step {
  readonly name: string;
  /** Milliseconds that the release may take; then the next one begins and this one counts as unfinished. */
  readonly boundMs: number;
  /** An abort of the stop need not wait for it. Without it a step always gets its time. */
  readonly abandonable?: boolean;
  /** Acquires. May be cut short by a stop: its release runs all the same. */
  start(): Promise<void>;
  /** Releases what `start` acquired, also when that was nothing or half of it. Must mean "ensure closed": it may be called again. */
  stop(): Promise<void>;
}

export interface StopReport {
  /** Steps that did not finish within their bound. */
  readonly unfinished: readonly string[];
  /** Steps whose release failed. */
  readonly failed: readonly string[];
}

type Phase = 'starting' | 'stopping' | 'stopped';

const TRIES = 3;
const FIRST_PAUSE_MS = 100;

/**
 * Brings parts up in order and down in reverse order. States:
 *
 *   starting → stopping → stopped
 *
 * Parts that need nothing of each other may start side by side; they stop in the reverse order of their calls all the same.
 *
 * A part's release is registered before its start is attempted, so that a half-acquired part is released too (GW-03). A failed start
 * stops what was registered and the original error surfaces (GW-04). `stop` may be called any number of times, from anywhere: all
 * calls share one execution (GW-15). Every release is bounded; one that hangs or throws does not prevent the next (GW-12, GW-13).
 */
export class Lifecycle {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #steps: { readonly step: Step; started: Promise<void> }[] = [];
  #phase: Phase = 'starting';
  #stopping: Promise<StopReport> | null = null;
  /** Of the first start that failed, and with it all. */
  #failure: { readonly error: unknown } | null = null;
  /** A caller of the stop waits for nothing that it can leave. */
  readonly #abandoned = Promise.withResolvers<void>();
  readonly #pending = new Set<string>();

  constructor(parts: { clock: Clock; logger: Logger }) {
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /** Names of the steps that are not released yet; for the message of a forced exit. */
  get unfinished(): readonly string[] {
    return this.#stopping === null ? this.#steps.map(({ step }) => step.name).reverse() : [...this.#pending];
  }

  get phase(): Phase {
    return this.#phase;
  }

  /**
   * Registers the release of a step, then starts it.
   *
   * @throws what the start throws, after everything was released, or a start beside it; `shutting_down` when a stop was asked for before or meanwhile
   */
  async start(step: Step): Promise<void> {
    this.#refuseWhenStopping();
    const begun = performance.now();
    // On the next turn, so that the release is registered before anything is acquired.
    const started = Promise.resolve().then(() => step.start());
    const settled = started.then(
      () => {},
      () => {},
    );
    this.#steps.push({ step, started: settled });
    try {
      await started;
    } catch (error) {
      this.#failure ??= { error };
    }
    if (this.#failure !== null) {
      await this.stop();
      throw this.#failure.error;
    }
    this.#refuseWhenStopping();
    this.#logger.debug('Started', { step: step.name, milliseconds: Math.round(performance.now() - begun) });
  }

  #refuseWhenStopping(): void {
    if (this.#phase !== 'starting') throw new ReindeerError('shutting_down', 'A stop was asked for during the start.');
  }

  /**
   * Releases everything, the last part first.
   *
   * @param signal a caller that is itself told to end: an abort leaves steps that can be abandoned, and no other; everything is still
   *   stopped and awaited, and only then is the abort's reason thrown. Without it the stop never throws.
   */
  stop(signal?: AbortSignal): Promise<StopReport> {
    this.#stopping ??= this.#stop();
    return signal === undefined ? this.#stopping : this.#stopUnder(signal, this.#stopping);
  }

  async #stopUnder(signal: AbortSignal, stopping: Promise<StopReport>): Promise<StopReport> {
    const onAbort = (): void => this.#abandoned.resolve();
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      const report = await stopping;
      signal.throwIfAborted();
      return report;
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  async #stop(): Promise<StopReport> {
    this.#phase = 'stopping';
    const steps = this.#steps.toReversed();
    for (const { step } of steps) this.#pending.add(step.name);
    const unfinished: string[] = [];
    const failed: string[] = [];
    for (const { step, started } of steps) {
      const outcome = await this.#release(step, started);
      this.#pending.delete(step.name);
      if (outcome === 'unfinished') unfinished.push(step.name);
      if (outcome === 'failed') failed.push(step.name);
    }
    this.#phase = 'stopped';
    return { unfinished, failed };
  }

  async #release(step: Step, started: Promise<void>): Promise<'done' | 'failed' | 'unfinished'> {
    const begun = performance.now();
    const patience = new AbortController();
    const work = (async (): Promise<'done' | 'failed'> => {
      // A start under way is awaited: releasing under its hands would leave what it acquires afterwards.
      await started;
      return await this.#tryRelease(step, patience.signal);
    })();
    const late = this.#clock.sleep(step.boundMs, patience.signal).then(
      () => 'unfinished' as const,
      () => 'done' as const,
    );
    const given = step.abandonable === true ? [this.#abandoned.promise.then(() => 'unfinished' as const)] : [];
    const outcome = await Promise.race([work, late, ...given]);
    patience.abort();
    const milliseconds = Math.round(performance.now() - begun);
    if (outcome === 'unfinished')
      this.#logger.error('A part did not stop in time', { step: step.name, boundMs: step.boundMs });
    else this.#logger.debug('Stopped', { step: step.name, milliseconds });
    return outcome;
  }

  /** What failed for a moment is tried again (GW-22), within the bound of the step. */
  async #tryRelease(step: Step, signal: AbortSignal): Promise<'done' | 'failed'> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await step.stop();
        return 'done';
      } catch (error) {
        const again = attempt < TRIES && ReindeerError.is(error) && error.retryable && !signal.aborted;
        this.#logger.error('A part did not stop cleanly', { step: step.name, attempt, again, error: String(error) });
        if (!again) return 'failed';
        await this.#clock.sleep(FIRST_PAUSE_MS * 2 ** (attempt - 1), signal).catch(() => {});
      }
    }
  }
}
