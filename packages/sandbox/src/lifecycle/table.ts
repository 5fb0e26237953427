import {
  ABSENT_SANDBOX,
  type Clock,
  isQuiet,
  type Logger,
  type SandboxClient,
  type SandboxEvent,
  type SandboxIdentity,
  type SandboxMachine,
  type SandboxState,
  type SandboxTransition,
} from '@reindeer/protocol';
import { identityKey } from './identity.ts';

/**
 * What this instance knows of its sandboxes: state, client and thread of each id. `apply` is the one synchronous section in which
 * anything changes (ND-02): a condition that an event carries is judged in the tick in which the change is made.
 *
 * A row exists while something is known or going on; it leaves with the last mark, so that a thread that ended costs nothing (ND-05).
 */
export class SandboxTable {
  readonly #machine: SandboxMachine;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #states = new Map<string, SandboxState>();
  readonly #clients = new Map<string, SandboxClient>();
  readonly #byThread = new Map<string, string>();
  readonly #closing = new Set<Promise<void>>();
  #epoch = 0;
  #change = Promise.withResolvers<void>();

  constructor(parts: { readonly machine: SandboxMachine; readonly clock: Clock; readonly logger: Logger }) {
    this.#machine = parts.machine;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  get now(): number {
    return this.#clock.monotonic();
  }

  state(id: string): SandboxState {
    return this.#states.get(id) ?? ABSENT_SANDBOX;
  }

  client(id: string): SandboxClient | undefined {
    return this.#clients.get(id);
  }

  /** The active sandbox of a thread. */
  idOf(identity: SandboxIdentity): string | undefined {
    return this.#byThread.get(identityKey(identity));
  }

  ids(...phases: readonly SandboxState['phase'][]): readonly string[] {
    return [...this.#states].filter(([, state]) => phases.includes(state.phase)).map(([id]) => id);
  }

  /** Containers that this instance is starting. */
  get starting(): number {
    let count = 0;
    for (const state of this.#states.values()) if (state.creating) count += 1;
    return count;
  }

  /** Containers that this instance keeps or starts, besides the one of `except`. */
  count(except: string): number {
    let count = 0;
    for (const [id, state] of this.#states) {
      if (id !== except && (state.phase !== 'absent' || state.creating)) count += 1;
    }
    return count;
  }

  /** Resolves at the next change of a phase or a start: somebody may have left. */
  nextChange(): Promise<void> {
    return this.#change.promise;
  }

  /** A number that was never an epoch before. */
  nextEpoch(): number {
    this.#epoch += 1;
    return this.#epoch;
  }

  /**
   * Applies one event. A client is closed, in the background, as soon as its sandbox is no longer active or gets another one.
   *
   * @param client the new client, with `track` and `promote`
   */
  apply(id: string, event: SandboxEvent, client?: SandboxClient): SandboxTransition {
    const before = this.state(id);
    const transition = this.#machine(before, event);
    if (transition.outcome === 'refused') return transition;
    const { state } = transition;
    if (before.phase === 'active' && before.identity !== null && (state.phase !== 'active' || client !== undefined)) {
      const key = identityKey(before.identity);
      if (this.#byThread.get(key) === id) this.#byThread.delete(key);
    }
    if (state.phase !== 'active' || client !== undefined) this.#close(id);
    if (state.phase === 'active' && client !== undefined) {
      this.#clients.set(id, client);
      if (state.identity !== null) this.#byThread.set(identityKey(state.identity), id);
    }
    if (isQuiet(state)) this.#states.delete(id);
    else this.#states.set(id, state);
    if (before.phase !== state.phase || before.creating !== state.creating) {
      const { resolve } = this.#change;
      this.#change = Promise.withResolvers();
      resolve();
    }
    return transition;
  }

  /** Drops the grace timers of containers that are no longer listed. */
  vanishExcept(listed: ReadonlySet<string>): void {
    for (const [id, state] of [...this.#states]) {
      if (state.unownedSince !== null && !listed.has(id)) this.apply(id, { type: 'vanished' });
    }
  }

  /** Rows, clients and threads that are kept; all 0 when nothing is going on. */
  sizes(): { readonly rows: number; readonly clients: number; readonly threads: number } {
    return { rows: this.#states.size, clients: this.#clients.size, threads: this.#byThread.size };
  }

  /** Resolves when every client that was let go has closed. */
  async closed(): Promise<void> {
    await Promise.all([...this.#closing]);
  }

  #close(id: string): void {
    const client = this.#clients.get(id);
    if (client === undefined) return;
    this.#clients.delete(id);
    this.closeLater(client);
  }

  /** Closes a client that is in nobody's hands; its errors are logged, never thrown. */
  closeLater(client: SandboxClient): void {
    const closing = (async () => {
      try {
        await client.close();
      } catch (error) {
        this.#logger.warn('A sandbox client did not close cleanly', { sandboxId: client.id, cause: String(error) });
      }
    })();
    this.#closing.add(closing);
    closing.finally(() => this.#closing.delete(closing)).catch(() => {});
  }
}
