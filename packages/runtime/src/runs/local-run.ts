import type { CancelAction, Fence, Run } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import type { EffectsRegistry } from '../effects/effects.ts';
import type { Begun } from './admission.ts';

/** Why a run of this process is told to end. */
export type StopReason =
  | { readonly kind: 'cancelled'; readonly action: CancelAction }
  /** A newer run replaced it; the row reads `interrupted` already and still waits for our acknowledgement (seed 003). */
  | { readonly kind: 'superseded'; readonly action: CancelAction }
  | { readonly kind: 'timeout' }
  | { readonly kind: 'shutdown' }
  /** The right is lost: from here on nothing is written for this run (RL-08). */
  | { readonly kind: 'fenced' };

/**
 * What this process knows of a run that it holds.
 *
 *   waiting → running → finalizing → settled
 *
 * `waiting`: admitted or taken over, its worker waits for earlier runs of the thread and starts the row. `running`: the graph streams.
 * `finalizing`: effects end, rollback, terminal write. `settled`: acknowledged, or fenced, or given up to recovery; the record
 * leaves memory. Invariants: the first stop reason stays, except that `fenced` replaces any; after a stop no effect starts (D6).
 */
export class LocalRun {
  readonly run: Run;
  readonly fence: Fence;
  readonly effects: EffectsRegistry;
  /** Order of arrival in this process; a run waits for those before it. */
  readonly order: number;
  /** Taken over from a dead holder, not admitted here. */
  readonly recovered: boolean;
  /** Started with its admission: no earlier run of the thread is left, and none can come before it. */
  readonly begun: Begun | null;
  /** Given with the run and never stored (SK-8); null = none, or they were told to another process. Not shown by anything that prints a run. */
  readonly #secrets: Readonly<Record<string, string>> | null;
  phase: 'waiting' | 'running' | 'finalizing' | 'settled' = 'waiting';
  /** The row reads `interrupted`: leases are renewed with `allowInterrupted`. */
  superseded: boolean;
  /** The terminal write is under way: its answer decides, not a renewal that crosses it. */
  writesEnd = false;
  /** The acknowledged row, once there is one. */
  final: Run | null = null;
  readonly #controller = new AbortController();
  readonly #lost = Promise.withResolvers<void>();
  readonly #settled = Promise.withResolvers<void>();
  #reason: StopReason | null = null;

  constructor(parts: {
    run: Run;
    fence: Fence;
    effects: EffectsRegistry;
    order: number;
    recovered: boolean;
    begun?: Begun | null;
    secrets?: Readonly<Record<string, string>> | null;
  }) {
    this.run = parts.run;
    this.fence = parts.fence;
    this.effects = parts.effects;
    this.order = parts.order;
    this.recovered = parts.recovered;
    this.begun = parts.begun ?? null;
    this.#secrets = parts.secrets ?? null;
    this.superseded = parts.run.status === 'interrupted';
  }

  get secrets(): Readonly<Record<string, string>> | null {
    return this.#secrets;
  }

  /** Fires once, at the first stop. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get stopReason(): StopReason | null {
    return this.#reason;
  }

  get fenced(): boolean {
    return this.#reason?.kind === 'fenced';
  }

  /** Resolves when the right is lost. */
  get lost(): Promise<void> {
    return this.#lost.promise;
  }

  /** Resolves when the record leaves memory. */
  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  stop(reason: StopReason): void {
    if (reason.kind === 'superseded') this.superseded = true;
    if (this.phase === 'settled') return;
    if (this.#reason === null || (reason.kind === 'fenced' && !this.fenced)) this.#reason = reason;
    if (this.fenced) this.#lost.resolve();
    this.effects.close();
    if (this.#controller.signal.aborted) return;
    const detail = { stop: reason.kind };
    this.#controller.abort(
      reason.kind === 'fenced'
        ? new ReindeerError('fenced', 'The run is held by somebody else now.', { detail })
        : new ReindeerError('aborted', `The run is stopping: ${reason.kind}.`, { detail }),
    );
  }

  /** At the terminal write the row turned out to be cancelled already: that cancel is the reason from now on (RL-14). */
  adopt(action: CancelAction): void {
    const kind = this.#reason?.kind;
    if (kind !== 'fenced' && kind !== 'superseded') this.#reason = { kind: 'cancelled', action };
    this.effects.close();
  }

  settle(): void {
    this.phase = 'settled';
    this.effects.close();
    this.#settled.resolve();
  }
}
