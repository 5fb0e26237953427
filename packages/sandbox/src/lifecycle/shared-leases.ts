import {
  type Logger,
  ReindeerError,
  type Sandbox,
  type SandboxIdentity,
  type SandboxLeases,
  type SandboxProvider,
} from '@reindeer/protocol';
import { KeyedLock } from '../keyed-lock.ts';
import { aborted } from './errors.ts';
import { identityKey } from './identity.ts';

export interface HoldInput extends SandboxIdentity {
  /** Who holds: a run's attempt, a sub-agent's task. Set by the server, never taken from a caller's input (SQ-13). */
  readonly owner: string;
  readonly signal?: AbortSignal;
}

interface Binding {
  readonly key: string;
  readonly sandboxId: string;
}

interface Shared {
  readonly owners: Set<string>;
  /** Somebody who left wanted it parked (SQ-08). */
  park: boolean;
}

/** Most owners that may hold at once. */
const MAX_OWNERS = 100_000;

/**
 * One sandbox for a lead agent and its sub-agents: the provider hears of a release only when the last holder leaves (SQ-07).
 *
 * An owner: *unbound* → `hold` → *bound* to one thread's sandbox → `leave` → *unbound*. A borrower leaves without asking for a park;
 * what somebody else asked for before it is then done by it, as the last one out. Everything about one thread happens in its own
 * section, in the order of arrival.
 */
export class SharedLeases implements SandboxLeases {
  readonly #provider: SandboxProvider;
  readonly #logger: Logger;
  readonly #lock = new KeyedLock();
  readonly #bindings = new Map<string, Binding>();
  readonly #shared = new Map<string, Shared>();

  constructor(provider: SandboxProvider, logger: Logger) {
    this.#provider = provider;
    this.#logger = logger;
  }

  /**
   * The thread's sandbox, held by `owner` until `leave`. Repeated calls of one owner give the same one; a sandbox that the provider no
   * longer knows is acquired again (SQ-11). When the caller gives up, the acquire is awaited and undone before the thread opens again
   * (SQ-12).
   *
   * @throws ReindeerError `conflict` when the owner holds another thread's sandbox (SQ-10), `aborted`, `over_capacity`, or as `acquire`
   */
  async hold(input: HoldInput): Promise<Sandbox> {
    const { owner, signal } = input;
    const identity = { userId: input.userId, threadId: input.threadId };
    const key = identityKey(identity);
    this.#refuseOther(owner, key);
    return this.#lock.run(
      key,
      async () => {
        // Again inside the section: the same owner may have been bound elsewhere while it waited.
        this.#refuseOther(owner, key);
        const bound = this.#bindings.get(owner);
        if (bound !== undefined) {
          const sandbox = this.#provider.get(bound.sandboxId);
          if (sandbox !== undefined) return sandbox;
          this.#drop(bound.sandboxId);
        }
        if (this.#bindings.size >= MAX_OWNERS) {
          throw new ReindeerError('over_capacity', 'Too many agents hold sandboxes; try again later.', {
            retryable: true,
          });
        }
        // The signal only ends its waits: what it started it finishes and parks, before the thread opens again (SQ-12).
        const sandbox = await this.#provider.acquire({ ...identity, ...(signal === undefined ? {} : { signal }) });
        if (signal?.aborted) {
          if (!this.#shared.has(sandbox.id)) await this.#release(sandbox.id);
          throw aborted();
        }
        this.#bindings.set(owner, { key, sandboxId: sandbox.id });
        const shared = this.#shared.get(sandbox.id) ?? { owners: new Set<string>(), park: false };
        shared.owners.add(owner);
        this.#shared.set(sandbox.id, shared);
        return sandbox;
      },
      signal,
    );
  }

  /**
   * The owner needs the sandbox no more. Twice is once (SQ-09). Never throws because of the provider.
   *
   * @param options.park false: a borrower, who does not ask for the sandbox to be parked. Default true
   */
  async leave(owner: string, options: { readonly park?: boolean } = {}): Promise<void> {
    const bound = this.#bindings.get(owner);
    if (bound === undefined) return;
    await this.#lock.run(bound.key, async () => {
      if (this.#bindings.get(owner) !== bound) return;
      this.#bindings.delete(owner);
      const shared = this.#shared.get(bound.sandboxId);
      if (shared === undefined || !shared.owners.delete(owner)) return;
      if (options.park !== false) shared.park = true;
      if (shared.owners.size > 0) return;
      this.#shared.delete(bound.sandboxId);
      if (shared.park) await this.#release(bound.sandboxId);
    });
  }

  /** How many hold this sandbox. */
  holders(sandboxId: string): number {
    return this.#shared.get(sandboxId)?.owners.size ?? 0;
  }

  /** Bindings, shared sandboxes and sections; all 0 when nobody holds anything (ND-05). */
  sizes(): Readonly<Record<string, number>> {
    return { bindings: this.#bindings.size, shared: this.#shared.size, sections: this.#lock.size };
  }

  #refuseOther(owner: string, key: string): void {
    const bound = this.#bindings.get(owner);
    if (bound === undefined || bound.key === key) return;
    throw new ReindeerError('conflict', 'This agent holds the sandbox of another thread.', {
      detail: { reason: 'bound_elsewhere' },
    });
  }

  /** The provider has lost it: every binding to it is void. */
  #drop(sandboxId: string): void {
    for (const owner of this.#shared.get(sandboxId)?.owners ?? []) this.#bindings.delete(owner);
    this.#shared.delete(sandboxId);
  }

  async #release(sandboxId: string): Promise<void> {
    try {
      await this.#provider.release(sandboxId);
    } catch (error) {
      this.#logger.warn('A sandbox could not be parked', { sandboxId, cause: String(error) });
    }
  }
}
