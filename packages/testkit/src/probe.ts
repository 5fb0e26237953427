import type { Probe } from '@reindeer/protocol';
import type { Deferred } from './deferred.ts';
import { deferred } from './deferred.ts';

type Detail = Readonly<Record<string, unknown>>;

export interface ProbePassage {
  readonly point: string;
  readonly detail: Detail;
}

export interface ProbeGate {
  /** Resolves when somebody stands at the point. */
  readonly reached: Promise<ProbePassage>;
  /** Lets the one who stands there go on; callers that come later pass. */
  release(): void;
  /** Makes the one who stands there fail with this error. */
  fail(error: unknown): void;
}

interface Hold {
  readonly point: string;
  readonly when: (detail: Detail) => boolean;
  readonly reached: Deferred<ProbePassage>;
  readonly released: Deferred<void>;
}

/**
 * Records which named points the code passes, and holds the next passage of a point open: the deterministic form of a race.
 * Hold A at its point, run B to its end, release A.
 */
export class ProbeRecorder implements Probe {
  readonly passages: ProbePassage[] = [];
  readonly #holds: Hold[] = [];

  at(point: string, detail: Detail = {}): Promise<void> | undefined {
    const passage = { point, detail };
    this.passages.push(passage);
    const index = this.#holds.findIndex((hold) => hold.point === point && hold.when(detail));
    const hold = this.#holds[index];
    if (hold === undefined) return undefined;
    this.#holds.splice(index, 1);
    hold.reached.resolve(passage);
    return hold.released.promise;
  }

  /** Holds the next passage of `point` (that `when` accepts). */
  hold(point: string, when: (detail: Detail) => boolean = () => true): ProbeGate {
    const hold: Hold = { point, when, reached: deferred<ProbePassage>(), released: deferred() };
    this.#holds.push(hold);
    return {
      reached: hold.reached.promise,
      release: () => {
        const index = this.#holds.indexOf(hold);
        if (index >= 0) this.#holds.splice(index, 1);
        hold.released.resolve();
      },
      fail: (error) => hold.released.reject(error),
    };
  }

  /** How often a point was passed. */
  count(point: string): number {
    return this.passages.filter((passage) => passage.point === point).length;
  }
}
