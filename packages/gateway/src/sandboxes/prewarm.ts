import type { Logger, Run, SandboxLeases, SandboxLifecycle } from '@reindeer/protocol';

/** Sandboxes that are being started ahead at the same time; the others start at their first use. */
const MAX_AT_ONCE = 8;

export interface PrewarmParts {
  readonly lifecycle: SandboxLifecycle;
  readonly leases: SandboxLeases;
  /** As many sandboxes as there should be: nothing is started ahead past it, and nothing is given up for it. */
  readonly replicas: () => number;
  readonly logger: Logger;
}

/**
 * Starts the sandbox of a run when it is admitted, so that it is warm by the time the model first asks for it. It is held in a name of
 * its own and left again at once: a run that has begun to use it meanwhile keeps it. What fails here is no failure of the run, which
 * acquires for itself.
 */
export class Prewarming {
  readonly #parts: PrewarmParts;
  readonly #over = new AbortController();
  readonly #running = new Set<Promise<void>>();

  constructor(parts: PrewarmParts) {
    this.#parts = parts;
  }

  /** A run was admitted. Returns at once, never throws. */
  admitted(run: Pick<Run, 'runId' | 'threadId' | 'userId'>): void {
    if (this.#over.signal.aborted || this.#running.size >= MAX_AT_ONCE) return;
    const { lifecycle, replicas } = this.#parts;
    const kept = lifecycle.list();
    // It has one already, active or warm.
    const has = kept.some(({ identity }) => identity?.threadId === run.threadId && identity.userId === run.userId);
    if (has || kept.length + this.#running.size >= replicas()) return;
    const warming = this.#warm(run);
    this.#running.add(warming);
    warming.finally(() => this.#running.delete(warming)).catch(() => {});
  }

  /** Starts nothing more; what is being started ends its waits, and the provider's own stop waits for the rest. Idempotent. */
  stop(): void {
    this.#over.abort();
  }

  /** Resolves when nothing is being started. */
  async settled(): Promise<void> {
    await Promise.all([...this.#running]);
  }

  async #warm({ runId, threadId, userId }: Pick<Run, 'runId' | 'threadId' | 'userId'>): Promise<void> {
    const { leases, logger } = this.#parts;
    const owner = `prewarm:${runId}`;
    try {
      await leases.hold({ userId, threadId, owner, signal: this.#over.signal });
    } catch (error) {
      logger.debug('A sandbox could not be started ahead', { runId, cause: String(error) });
    }
    await leases.leave(owner).catch(() => {});
  }
}
