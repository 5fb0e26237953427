import type { Logger } from '@reindeer/protocol';

/** Work that nobody waits for, except whoever closes down. A failure is logged, never lost and never unhandled. */
export class Background {
  readonly #running = new Set<Promise<void>>();
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  add(work: Promise<void>): void {
    const tracked = work
      .catch((error: unknown) => this.#logger.warn('Clearing up failed.', { cause: String(error) }))
      .finally(() => this.#running.delete(tracked));
    this.#running.add(tracked);
  }

  async settled(): Promise<void> {
    await Promise.all(this.#running);
  }
}
