import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type AttemptContext, ReindeerError, type Sandbox, type SandboxProvider } from '@reindeer/protocol';

/** The key in `configurable` under which hooks and tools find their attempt. The double underscore keeps it out of metadata. */
export const SCOPE = '__reindeer_scope';

/**
 * What one attempt lends to its hooks and tools: the attempt itself and, on first use, the sandbox of its thread.
 *
 * The sandbox: none → (first call of `sandbox()`) acquiring → held → (`release()`) none. Concurrent first calls share one
 * acquisition; a failed one is forgotten, so that the next call tries again; `release` is idempotent.
 */
export class AttemptScope {
  readonly attempt: AttemptContext;
  /** The model that the run chose; null where the loop's owner always uses the same one. */
  readonly model: BaseChatModel | null;
  readonly #provider: SandboxProvider | null;
  #pending: Promise<Sandbox> | null = null;
  #held: Sandbox | null = null;
  readonly #queues = new Map<string, Promise<unknown>>();

  constructor(attempt: AttemptContext, provider: SandboxProvider | null, model: BaseChatModel | null = null) {
    this.attempt = attempt;
    this.model = model;
    this.#provider = provider;
  }

  /** The thread's sandbox, acquired at first use (MW-6). Throws `sandbox_unavailable`. */
  sandbox(): Promise<Sandbox> {
    const provider = this.#provider;
    if (provider === null)
      return Promise.reject(new ReindeerError('sandbox_unavailable', 'This agent has no sandbox provider.'));
    if (this.#pending !== null) return this.#pending;
    const { userId, threadId } = this.attempt.run;
    const pending = provider.acquire({ userId, threadId, signal: this.attempt.signal }).then(
      (sandbox) => {
        this.#held = sandbox;
        return sandbox;
      },
      (error: unknown) => {
        this.#pending = null;
        throw error;
      },
    );
    this.#pending = pending;
    return pending;
  }

  /** Runs `work` after all earlier work on the same path, whatever became of that: two parallel edits of one file cannot mix. */
  serialise<T>(path: string, work: () => Promise<T>): Promise<T> {
    const before = this.#queues.get(path) ?? Promise.resolve();
    const current = before.then(work, work);
    const settled = current.then(
      () => undefined,
      () => undefined,
    );
    this.#queues.set(path, settled);
    return current.finally(() => {
      // The last one out removes the queue, so that the map does not grow with every path.
      if (this.#queues.get(path) === settled) this.#queues.delete(path);
    });
  }

  /** Id of the sandbox in hand; null before the first use and after the release. */
  get sandboxId(): string | null {
    return this.#held?.id ?? null;
  }

  /** LangGraph's debug frames print the configuration; an attempt is nothing to show. */
  toJSON(): undefined {
    return undefined;
  }

  /** Gives the sandbox back to the warm pool. Never throws: a store that cannot answer must not fail a finished turn. */
  async release(): Promise<void> {
    const pending = this.#pending;
    if (pending === null || this.#provider === null) return;
    this.#pending = null;
    this.#held = null;
    try {
      const sandbox = await pending;
      this.#held = null;
      await this.#provider.release(sandbox.id);
    } catch {
      // Acquisition failed or the provider is going down: nothing is held.
    }
  }
}

/** The scope of the attempt that a hook or tool runs in. Throws `internal` outside of one. */
export function scopeOf(holder: {
  readonly configurable?: Readonly<Record<string, unknown>> | undefined;
}): AttemptScope {
  const scope = holder.configurable?.[SCOPE];
  if (scope instanceof AttemptScope) return scope;
  throw new ReindeerError('internal', 'This hook or tool was called outside of a run of the Reindeer agent.');
}
