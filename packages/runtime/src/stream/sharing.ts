import type { RelayedFrame, Surroundings, TokenRelay, WantedRun } from '@reindeer/protocol';
import { NOT_NEEDED } from '../common/waiting.ts';
import type { TokenHub } from './token-hub.ts';

/** A wish is repeated after this time, and forgotten by the other side after `FORGET_MS` without one. Milliseconds. */
const REPEAT_MS = 2_000;
const FORGET_MS = 6_000;
/** Frames that were missed are asked for anew at most this often for one run; otherwise with the next repeat. */
const FRESH_MS = 500;

interface Watched {
  readonly end: () => void;
  /** Frames have come, and none were missed since. */
  complete: boolean;
  freshAt: number;
}

/**
 * Who of the peers reads what is written here, and what is read here that a peer writes.
 *
 * A wish stands for `FORGET_MS`; the reading side repeats it every `REPEAT_MS` for all its runs in one message. So a peer that dies, a
 * wish that is lost, and a run that moves to another instance need no further signal. Both maps end with what they stand for:
 * a hub that closes, a reader that leaves.
 */
export class TokenSharing {
  readonly #relay: TokenRelay;
  readonly #surroundings: Surroundings;
  readonly #hubOf: (runId: string) => TokenHub | null;
  readonly #onFrames: (runId: string, frames: readonly RelayedFrame[]) => boolean;
  readonly #unlisten: () => void;
  readonly #wanted = new Map<string, { hub: TokenHub; until: number }>();
  readonly #watched = new Map<string, Watched>();
  #repeating: AbortController | null = null;

  constructor(parts: {
    relay: TokenRelay;
    surroundings: Surroundings;
    /** The open hub of a run that is worked here. */
    hubOf: (runId: string) => TokenHub | null;
    /** Takes frames in; false = some are missing. */
    onFrames: (runId: string, frames: readonly RelayedFrame[]) => boolean;
  }) {
    this.#relay = parts.relay;
    this.#surroundings = parts.surroundings;
    this.#hubOf = parts.hubOf;
    this.#onFrames = parts.onFrames;
    this.#unlisten = parts.relay.onWanted((runs) => this.#onWanted(runs));
  }

  /** Somebody here reads a run that is not worked here. */
  watch(runId: string): void {
    if (this.#watched.has(runId)) return;
    const watched: Watched = {
      complete: false,
      freshAt: this.#surroundings.clock.monotonic(),
      end: this.#relay.watch(runId, (frames) => {
        watched.complete = this.#onFrames(runId, frames);
        if (!watched.complete) this.#refresh(runId, watched);
      }),
    };
    this.#watched.set(runId, watched);
    this.#relay.want([{ runId, fresh: true }]);
    if (this.#repeating !== null) return;
    this.#repeating = new AbortController();
    void this.#repeat(this.#repeating.signal);
  }

  unwatch(runId: string): void {
    this.#watched.get(runId)?.end();
    this.#watched.delete(runId);
    if (this.#watched.size > 0) return;
    this.#repeating?.abort(NOT_NEEDED);
    this.#repeating = null;
  }

  /** The hub closes: nothing more is told. */
  forget(runId: string, hub: TokenHub): void {
    if (this.#wanted.get(runId)?.hub === hub) this.#wanted.delete(runId);
  }

  /** Idempotent. */
  stop(): void {
    this.#unlisten();
    for (const runId of [...this.#watched.keys()]) this.unwatch(runId);
    for (const { hub } of this.#wanted.values()) hub.share(null);
    this.#wanted.clear();
  }

  #refresh(runId: string, watched: Watched): void {
    const now = this.#surroundings.clock.monotonic();
    if (now - watched.freshAt < FRESH_MS) return;
    watched.freshAt = now;
    this.#relay.want([{ runId, fresh: true }]);
  }

  async #repeat(signal: AbortSignal): Promise<void> {
    const { clock } = this.#surroundings;
    try {
      while (!signal.aborted) {
        await clock.sleep(REPEAT_MS, signal);
        const runs: WantedRun[] = [];
        for (const [runId, watched] of this.#watched) {
          const fresh = !watched.complete;
          if (fresh) watched.freshAt = clock.monotonic();
          runs.push({ runId, fresh });
        }
        this.#relay.want(runs);
      }
    } catch {
      // Nobody reads any more.
    }
  }

  #onWanted(runs: readonly WantedRun[]): void {
    const now = this.#surroundings.clock.monotonic();
    for (const { runId, fresh } of runs) {
      const hub = this.#hubOf(runId);
      if (hub === null) continue;
      const known = this.#wanted.get(runId);
      const isNew = known === undefined || known.hub !== hub || known.until <= now;
      const wish = { hub, until: now + FORGET_MS };
      this.#wanted.set(runId, wish);
      if (!isNew && !fresh) continue;
      hub.share((frames) => this.#tell(runId, hub, frames), true);
    }
  }

  #tell(runId: string, hub: TokenHub, frames: readonly RelayedFrame[]): void {
    const wish = this.#wanted.get(runId);
    if (wish?.hub !== hub || wish.until <= this.#surroundings.clock.monotonic()) {
      hub.share(null);
      if (wish?.hub === hub) this.#wanted.delete(runId);
      return;
    }
    this.#relay.send(runId, frames);
  }
}
