import type { MemoryDatabase } from '@reindeer/database';
import type { Log, Stores, Surroundings } from '@reindeer/protocol';
import type { Runtime, RuntimeSettings } from '@reindeer/runtime';
import { createRuntime } from '@reindeer/runtime';
import type { SeededRandom } from '@reindeer/testkit';
import type { Chronicle } from '../frame/chronicle.ts';
import type { Fate, Request, Serve } from '../frame/incarnation.ts';
import { Incarnation } from '../frame/incarnation.ts';
import type { Scheduler } from '../frame/scheduler.ts';
import type { Checker } from './checker.ts';
import { ASSISTANT, SimulatedSaver, simulatedGraph } from './graph.ts';

/** How rough a seed is: probabilities per call to the store. */
export interface Weather {
  readonly lostAnswers: number;
  readonly lostRequests: number;
  readonly slowCalls: number;
  /** Calls of this method are slow much more often: each seed has its own sore spot. */
  readonly soreMethod: string;
  /** Mean milliseconds between two troubles of one process. */
  readonly calm: number;
}

/** What all processes of a world share. */
export interface Surrounding {
  readonly random: SeededRandom;
  readonly scheduler: Scheduler;
  readonly chronicle: Chronicle;
  readonly checker: Checker;
  readonly database: MemoryDatabase;
  readonly serve: Serve;
  readonly onAppend: Stores['log']['onAppend'];
  /** What a mutant replaces on the side of the processes. */
  readonly near: (stores: Stores) => Stores;
  readonly around: (surroundings: Surroundings) => Surroundings;
  readonly weather: Weather;
  readonly settings: Pick<RuntimeSettings, 'leaseMs' | 'graceMs'>;
  /** No more trouble from now on. */
  readonly healed: () => boolean;
  /** Ids of checkpoints follow the clock of whoever makes them: they grow only as far as clocks do. */
  readonly nextCheckpoint: (now: number) => string;
  /** Counts a crash, for the figures. */
  readonly crashed: () => void;
}

/**
 * One of the processes of a world: a row of incarnations of the product's runtime under one name.
 *
 * States: booting → ready → stopping → down → booting …; a crash leads from any of them to down. Only a ready one answers clients.
 */
export class SimulatedProcess {
  readonly name: string;
  readonly #world: Surrounding;
  #number = 0;
  #incarnation: Incarnation | null = null;
  #runtime: Runtime | null = null;
  #ready = false;
  #connections = new AbortController();
  #wallOffset = 0;
  /** World time until which something hindered it: a pause, a call that was lost or slow, a stop. */
  #hinderedUntil = 0;
  #bootedAt = 0;
  #cutOffUntil = 0;
  #deafUntil = 0;

  constructor(name: string, world: Surrounding) {
    this.name = name;
    this.#world = world;
  }

  /** The runtime while clients are answered, else null. */
  get listening(): {
    readonly runtime: Runtime;
    readonly incarnation: Incarnation;
    readonly signal: AbortSignal;
  } | null {
    if (!this.#ready || this.#runtime === null || this.#incarnation === null) return null;
    return { runtime: this.#runtime, incarnation: this.#incarnation, signal: this.#connections.signal };
  }

  /** Has anything hindered the life of that name since? */
  hindered(owner: string, since: number): boolean {
    const incarnation = this.#incarnation;
    if (incarnation?.name !== owner || !incarnation.alive || !this.#ready) return true;
    return incarnation.pausedSince(since) || this.#hinderedUntil >= since || this.#bootedAt >= since;
  }

  /** Starts a new life, and another one when the store is out of reach at its start, as an operator's supervisor does. */
  async boot(): Promise<void> {
    const { chronicle, scheduler } = this.#world;
    for (;;) {
      const incarnation = this.#begin();
      const runtime = this.#makeRuntime(incarnation);
      this.#bootedAt = scheduler.now;
      this.#incarnation = incarnation;
      this.#runtime = runtime;
      chronicle.note(() => `${incarnation.name} BOOTS`);
      try {
        await runtime.start();
        this.#ready = true;
        return;
      } catch {
        incarnation.die();
        await scheduler.sleep(500);
      }
    }
  }

  /** As `kill -9`: whatever it was doing is gone, what it had sent may still arrive. */
  crash(): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} DIES`);
    this.#world.crashed();
    this.#ready = false;
    this.#incarnation?.die();
  }

  /** As SIGTERM: stops in order and leaves. Reports a stop that is not bounded or not complete. */
  async stop(): Promise<void> {
    const { random, scheduler, chronicle } = this.#world;
    const incarnation = this.#incarnation;
    const runtime = this.#runtime;
    if (!this.#ready || incarnation === null || runtime === null) return;
    this.#ready = false;
    chronicle.note(() => `${incarnation.name} STOPS`);
    const hardMs = 3_000 + random.below(5_000);
    const asked = scheduler.now;
    let stopped = false;
    void runtime.stop({ drainMs: random.below(3_000), hardMs }).then(() => {
      stopped = true;
    });
    while (!stopped) await scheduler.sleep(50);
    // RT-18: bounded, whatever its runs and its store do; only a pause may make it longer.
    const took = scheduler.now - asked;
    if (took > hardMs + 1_000 && !incarnation.pausedSince(asked))
      chronicle.broken('RT-18', `${incarnation.name} took ${took} ms to stop, and may take ${hardMs}`);
    this.#connections.abort(new Error('The server has stopped.'));
    await this.#nothingGoesOn(incarnation);
    incarnation.die();
  }

  /** ND-03: the loops are over. L4: nothing sleeps on from before; what an answer still sets off that was on its way is short. */
  async #nothingGoesOn(incarnation: Incarnation): Promise<void> {
    const { scheduler, chronicle } = this.#world;
    await scheduler.sleep(5);
    const since = scheduler.now;
    const { beats } = incarnation;
    await scheduler.sleep(9_000);
    if (incarnation.beats > beats)
      chronicle.broken(
        'ND-03',
        `${incarnation.name} renewed or claimed ${incarnation.beats - beats} times after its stop`,
      );
    const timers = incarnation.sleepingSince(since);
    // A reader that waits for a slow answer leaves with it.
    if (timers > 0 && !incarnation.pausedSince(since) && this.#hinderedUntil < since)
      chronicle.broken('L4', `${incarnation.name} has ${timers} timers of before its stop long after it`);
  }

  /** As SIGSTOP, or a virtual machine that is moved. */
  pause(milliseconds: number): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} PAUSES for ${milliseconds}`);
    this.#incarnation?.pause(milliseconds);
  }

  /** The store is out of reach. */
  cutOff(milliseconds: number): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} IS CUT OFF for ${milliseconds}`);
    this.#cutOffUntil = this.#world.scheduler.now + milliseconds;
  }

  /** Renewals alone do not come through. */
  deafen(milliseconds: number): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} CANNOT RENEW for ${milliseconds}`);
    this.#deafUntil = this.#world.scheduler.now + milliseconds;
    this.#hinderedUntil = Math.max(this.#hinderedUntil, this.#deafUntil);
  }

  /** Its wall clock jumps to this difference from the world's. */
  setClock(offset: number): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} CLOCK at ${offset}`);
    this.#wallOffset = offset;
    if (this.#incarnation !== null) this.#incarnation.wallOffset = offset;
  }

  heal(): void {
    this.#cutOffUntil = 0;
    this.#deafUntil = 0;
    this.#incarnation?.resume();
  }

  #begin(): Incarnation {
    const { random, scheduler, serve, checker } = this.#world;
    this.#number += 1;
    this.#ready = false;
    this.#connections = new AbortController();
    return new Incarnation({
      name: `${this.name}${this.#number}`,
      scheduler,
      random,
      serve,
      isBeat: (method) => method === 'renew' || method === 'claimOrphans',
      fate: (request) => this.#fate(request),
      wallOffset: this.#wallOffset,
      heard: (request, answer) => checker.heard(request, answer),
    });
  }

  #makeRuntime(incarnation: Incarnation): Runtime {
    const { near, around, checker, nextCheckpoint, onAppend } = this.#world;
    const stores = near(storesOf(incarnation, onAppend));
    const surroundings = around(incarnation.surroundings);
    return createRuntime({
      stores,
      graphs: new Map([[ASSISTANT, simulatedGraph(incarnation, checker)]]),
      surroundings,
      saverFor: ({ threadId, fence, writes }) =>
        new SimulatedSaver({
          threadId,
          fence,
          stores,
          surroundings,
          nextId: nextCheckpoint,
          ...(writes && { writes }),
        }),
      hooks: { onFinished: (run) => checker.finished(run, incarnation.name) },
      // The owner is new at every start; the earlier ones of this process are known to be dead (D12).
      settings: {
        instanceId: incarnation.name,
        deadOwners: Array.from({ length: this.#number - 1 }, (_, before) => `${this.name}${before + 1}`),
      },
    });
  }

  #fate({ method }: Pick<Request, 'method'>): Fate {
    const { random, scheduler, weather, healed, settings } = this.#world;
    const calm = healed();
    const slow = !calm && random.chance(method === weather.soreMethod ? 0.2 : weather.slowCalls);
    const deaf = method === 'renew' && scheduler.now < this.#deafUntil;
    const unreachable = deaf || scheduler.now < this.#cutOffUntil || random.chance(weather.lostRequests);
    const lost = unreachable ? 'before' : random.chance(weather.lostAnswers) ? 'after' : null;
    const fate: Fate = {
      there: 1 + random.below(slow ? settings.leaseMs * 1.5 : 6),
      back: 1 + random.below(slow ? settings.leaseMs / 2 : 6),
      lost: calm ? null : lost,
      outlivesCaller: random.chance(0.5),
    };
    if (slow || fate.lost !== null)
      this.#hinderedUntil = Math.max(this.#hinderedUntil, scheduler.now + fate.there + fate.back);
    return fate;
  }
}

/** The database as one process reaches it. */
function storesOf(incarnation: Incarnation, onAppend: Stores['log']['onAppend']): Stores {
  const links = Object.fromEntries(PORTS.map((name) => [name, incarnation.link(name)])) as unknown as Stores;
  return {
    ...links,
    log: incarnation.link<Log>('log', {
      onAppend: (listener) => onAppend((threadId, head) => incarnation.hint(() => listener(threadId, head))),
    }),
    close: () => Promise.resolve(),
  };
}

const PORTS = ['threads', 'runs', 'journal', 'checkpoints'] as const;

/** Gives a process trouble of every kind until the world heals. */
export async function trouble(process: SimulatedProcess, world: Surrounding): Promise<void> {
  const { random, scheduler, weather, healed, settings } = world;
  const { leaseMs, graceMs } = settings;
  for (;;) {
    await scheduler.sleep(random.below(2 * weather.calm));
    if (healed()) return;
    const kind = random.below(100);
    if (kind < 25) {
      process.crash();
      await scheduler.sleep(random.chance(0.5) ? random.below(2_000) : random.below(2 * leaseMs));
      await process.boot();
    } else if (kind < 52) {
      process.pause(random.chance(0.3) ? random.below(leaseMs) : leaseMs + random.below(2 * leaseMs));
    } else if (kind < 66) process.cutOff(random.below(2 * leaseMs));
    else if (kind < 80) process.deafen(leaseMs / 2 + random.below(2 * leaseMs));
    // Two clocks may differ by the grace: each by half of it.
    else if (kind < 90) process.setClock(random.below(graceMs) - graceMs / 2);
    else {
      await process.stop();
      await scheduler.sleep(random.below(1_000));
      await process.boot();
    }
  }
}
