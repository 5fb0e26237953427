/** A broken invariant. `invariant` names it (S1, L1, …); the message says what was seen. */
export class Violation extends Error {
  readonly invariant: string;
  constructor(invariant: string, message: string) {
    super(`${invariant}: ${message}`);
    this.name = 'Violation';
    this.invariant = invariant;
  }
}

/** What a world reports to: the first violation counts, and the trace says how it came to it. */
export class Chronicle {
  readonly #lines: string[] = [];
  readonly #keeps: boolean;
  readonly #now: () => number;
  #violation: Violation | null = null;

  constructor(now: () => number, keeps: boolean) {
    this.#now = now;
    this.#keeps = keeps;
  }

  get violation(): Violation | null {
    return this.#violation;
  }
  get lines(): readonly string[] {
    return this.#lines;
  }

  /** Notes what happened; the text is made only when a trace was asked for. */
  note(text: () => string): void {
    if (this.#keeps) this.#lines.push(`${String(Math.round(this.#now())).padStart(7)}  ${text()}`);
  }

  broken(invariant: string, message: string): void {
    this.note(() => `BROKEN ${invariant}: ${message}`);
    this.#violation ??= new Violation(invariant, message);
  }
}
