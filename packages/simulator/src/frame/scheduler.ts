/** Something that will happen; `run` null = called off. */
interface Entry {
  readonly due: number;
  readonly order: number;
  run: (() => void) | null;
}

export interface Scheduled {
  /** Calls it off. Idempotent. */
  cancel(): void;
}

/**
 * Virtual time and everything that is going to happen in it, ordered by time and then by the order of scheduling. One event runs at
 * a time, together with all promises that it settles; so equal seeds give equal histories.
 */
export class Scheduler {
  #now = 0;
  #order = 0;
  readonly #heap: Entry[] = [];

  /** Milliseconds since the beginning of the world. */
  get now(): number {
    return this.#now;
  }

  /** Runs `run` after `delay` milliseconds (0 = in this instant, after what is due already). */
  after(delay: number, run: () => void): Scheduled {
    this.#order += 1;
    const entry: Entry = { due: this.#now + Math.max(0, delay), order: this.#order, run };
    this.#push(entry);
    return {
      cancel: () => {
        entry.run = null;
      },
    };
  }

  /** Resolves after `delay` milliseconds. */
  sleep(delay: number): Promise<void> {
    return new Promise((resolve) => {
      this.after(delay, resolve);
    });
  }

  /** Lets the next event happen, and all that follows from it in the same instant. False = nothing is left before `until`. */
  async step(until: number): Promise<boolean> {
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.due > until) return false;
      this.#pop();
      if (next.run === null) continue;
      this.#now = Math.max(this.#now, next.due);
      next.run();
      await settle();
      return true;
    }
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    heap.push(entry);
    let at = heap.length - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || before(above, entry)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const right = left + 1;
      const l = heap[left];
      const r = heap[right];
      if (l === undefined) break;
      const [child, smaller] = r !== undefined && before(r, l) ? [right, r] : [left, l];
      if (before(last, smaller)) break;
      heap[at] = smaller;
      at = child;
    }
    heap[at] = last;
  }
}

const before = (a: Entry, b: Entry): boolean => a.due < b.due || (a.due === b.due && a.order < b.order);

/** Lets every promise run that is ready: Node takes its next-tick queue up again only when no microtask is left. */
export const settle = (): Promise<void> => new Promise((resolve) => process.nextTick(resolve));
