import type { Histogram, SandboxStats } from '@reindeer/protocol';
import type { Acquired } from './acquires.ts';

/** Upper bounds in seconds: a reuse takes microseconds, a cold start seconds. */
const BOUNDS = [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

type Path = Acquired['path'];

class Times {
  readonly #counts = BOUNDS.map(() => 0);
  #count = 0;
  #sum = 0;

  add(seconds: number): void {
    this.#count += 1;
    this.#sum += seconds;
    const at = BOUNDS.findIndex((bound) => seconds <= bound);
    if (at >= 0) this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  read(): Histogram {
    return { bounds: BOUNDS, counts: [...this.#counts], count: this.#count, sum: this.#sum };
  }
}

/** What the lifecycle counts of itself, since it was made. A fixed number of numbers, whatever happens. */
export class Meters {
  readonly #acquires: Readonly<Record<Path, Times>> = {
    reuse: new Times(),
    reclaim: new Times(),
    discover: new Times(),
    create: new Times(),
  };
  failedAcquires = 0;
  adopted = 0;
  /** Claims that the store refused or could not answer: something was not stopped, or not adopted. */
  refusedClaims = 0;
  /** Containers that this instance has stopped, or tried to. */
  stopped = 0;
  failedStops = 0;
  /** Leases that a peer had taken over. */
  forgotten = 0;

  acquired(path: Path, milliseconds: number): void {
    this.#acquires[path].add(milliseconds / 1000);
  }

  read(pool: Pick<SandboxStats, 'active' | 'warm' | 'starting'>): SandboxStats {
    const { reuse, reclaim, discover, create } = this.#acquires;
    const { failedAcquires, adopted, refusedClaims, stopped, failedStops, forgotten } = this;
    return {
      ...pool,
      acquires: { reuse: reuse.read(), reclaim: reclaim.read(), discover: discover.read(), create: create.read() },
      failedAcquires,
      adopted,
      refusedClaims,
      stopped,
      failedStops,
      forgotten,
    };
  }
}
