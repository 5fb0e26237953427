/** Work that is done side by side, so much of it at once. The first failure is told when more is added, and at the end, when all has ended. */
export class Beside {
  readonly #most: number;
  readonly #running = new Set<Promise<void>>();
  #failed: { readonly error: unknown } | null = null;

  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves when there is room for it. */
  async add(work: () => Promise<void>): Promise<void> {
    while (this.#running.size >= this.#most) await Promise.race(this.#running);
    if (this.#failed !== null) throw this.#failed.error;
    const running = work()
      .catch((error: unknown) => {
        this.#failed ??= { error };
      })
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Nothing goes on behind it, also when it rejects. */
  async end(): Promise<void> {
    await Promise.all(this.#running);
    if (this.#failed !== null) throw this.#failed.error;
  }

  /** The same for a caller that fails already. */
  async settle(): Promise<void> {
    await Promise.all(this.#running);
  }
}
