import type { Clock } from '@reindeer/protocol';
import type { SubagentOutcome } from './metadata.ts';

export type ExecutionStatus = 'pending' | 'running' | SubagentOutcome['status'];

/**
 * One sub-agent at work in this process.
 *
 *   pending → running → completed | failed | cancelled | timed_out
 *   pending ─────────────────────────────────────────────────────────→ (the same)
 *
 * The first terminal status stays (SA-01), and its outcome is there whenever the status says so (SA-02). A terminal status is not the end:
 * tools may still be closing. `ended` resolves when nothing of it acts any more; only then its slot and its record go.
 */
export class Execution {
  readonly id: string;
  readonly name: string;
  readonly #controller = new AbortController();
  readonly #terminal = Promise.withResolvers<SubagentOutcome>();
  readonly #ended = Promise.withResolvers<void>();
  #outcome: SubagentOutcome | null = null;
  #status: ExecutionStatus = 'pending';
  #hasEnded = false;

  constructor(id: string, name: string) {
    this.id = id;
    this.name = name;
  }

  get status(): ExecutionStatus {
    return this.#status;
  }

  /** Null until the status is terminal. */
  get outcome(): SubagentOutcome | null {
    return this.#outcome;
  }

  /** Fires when it is asked to stop. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get terminal(): Promise<SubagentOutcome> {
    return this.#terminal.promise;
  }

  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  begin(): void {
    if (this.#status === 'pending') this.#status = 'running';
  }

  /** Answers whether this outcome is the one that stays. */
  settle(outcome: SubagentOutcome): boolean {
    if (this.#outcome !== null) return false;
    this.#outcome = outcome;
    this.#status = outcome.status;
    this.#terminal.resolve(outcome);
    return true;
  }

  /** Asks it to stop. Idempotent. */
  stop(reason: unknown): void {
    this.#controller.abort(reason);
  }

  end(): void {
    this.#hasEnded = true;
    this.#ended.resolve();
  }
}

export const CANCELLED: SubagentOutcome = {
  status: 'cancelled',
  stopReason: null,
  result: '',
  error: 'The sub-agent was cancelled.',
};

/**
 * All sub-agents of a process, by execution id (a new one for each, since providers repeat the ids of tool calls, SA-03). Held strongly
 * until they have ended, also when the call that started one was answered without it (SA-08). Bounded by the capacity that admits them.
 */
export class Executions {
  readonly #clock: Clock;
  readonly #all = new Map<string, Execution>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  create(id: string, name: string): Execution {
    const execution = new Execution(id, name);
    this.#all.set(id, execution);
    return execution;
  }

  get(id: string): Execution | undefined {
    return this.#all.get(id);
  }

  get size(): number {
    return this.#all.size;
  }

  /** Cancels one; an unknown or ended one is left alone (SA-06). Answers whether the cancel counts. */
  requestCancel(id: string, reason: unknown): boolean {
    const execution = this.#all.get(id);
    if (execution === undefined || execution.hasEnded) return false;
    const counts = execution.settle(CANCELLED);
    execution.stop(reason);
    return counts;
  }

  /** Forgets one that has ended; others are kept (SA-04). Answers whether it is gone. */
  cleanup(id: string): boolean {
    const execution = this.#all.get(id);
    if (execution !== undefined && !execution.hasEnded) return false;
    return this.#all.delete(id);
  }

  /** Stops all and waits for their ends, at most `timeoutMs`. Answers the names of those that still run. */
  async drain(timeoutMs: number, reason: unknown): Promise<readonly string[]> {
    const live = [...this.#all.values()].filter((execution) => !execution.hasEnded);
    for (const execution of live) execution.stop(reason);
    const timer = new AbortController();
    const ended = Promise.all(live.map((execution) => execution.ended));
    await Promise.race([ended, this.#clock.sleep(timeoutMs, timer.signal).catch(() => undefined)]);
    timer.abort(reason);
    return live.filter((execution) => !execution.hasEnded).map((execution) => execution.name);
  }
}
