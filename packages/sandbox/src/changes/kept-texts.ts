/** What a file held when it was looked at; it counts as long as size and time of change are these. */
export interface Kept {
  readonly size: number;
  readonly modifiedAt: number;
  /** null = binary. */
  readonly text: string | null;
  readonly sha256: string;
}

const OF_A_THREAD = 500;

/**
 * Contents of files as they were last seen, so that a change can be shown. Only a cache: whatever is not here is shown without its
 * content of before. Bounded by bytes; the thread that was looked at the longest ago goes first.
 */
export class KeptTexts {
  readonly #limit: number;
  readonly #threads = new Map<string, { readonly files: Map<string, Kept>; bytes: number }>();
  #bytes = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Threads of which something is kept. */
  get size(): number {
    return this.#threads.size;
  }

  get(thread: string, path: string, size: number, modifiedAt: number): Kept | null {
    const known = this.#threads.get(thread)?.files.get(path);
    return known !== undefined && known.size === size && known.modifiedAt === modifiedAt ? known : null;
  }

  /** Replaces everything of a thread. */
  set(thread: string, files: Map<string, Kept>): void {
    this.#remove(thread);
    // Nothing to keep is not kept: threads without files would gather, since they weigh nothing.
    if (files.size === 0) return;
    let bytes = OF_A_THREAD;
    for (const { text } of files.values()) bytes += 200 + (text?.length ?? 0) * 2;
    if (bytes > this.#limit) return;
    this.#threads.set(thread, { files, bytes });
    this.#bytes += bytes;
    for (const oldest of this.#threads.keys()) {
      if (this.#bytes <= this.#limit) break;
      this.#remove(oldest);
    }
  }

  #remove(thread: string): void {
    this.#bytes -= this.#threads.get(thread)?.bytes ?? 0;
    this.#threads.delete(thread);
  }
}
