import type {
  ExecRequest,
  OwnershipStore,
  OwnershipValue,
  SandboxBackend,
  SandboxClient,
  SandboxFiles,
  SandboxIdentity,
  SandboxInfo,
  SandboxLifecycle,
  SandboxMachine,
} from '@reindeer/protocol';
import { ReindeerError, reduceSandbox } from '@reindeer/protocol';
import {
  createLifecycleProvider,
  type LifecycleSettings,
  MemoryLeases,
  MemoryOwnershipStore,
  SharedLeases,
} from '@reindeer/sandbox';
import type { SeededRandom } from '@reindeer/testkit';
import type { Chronicle } from '../frame/chronicle.ts';
import { type Fate, Incarnation, type Request } from '../frame/incarnation.ts';
import type { Scheduler } from '../frame/scheduler.ts';
import { type SandboxChecker, STORE_OPERATION_MS, type Turn } from './checker.ts';
import type { Engine } from './engine.ts';
import type { SandboxMutant } from './mutants.ts';

/** How rough a seed is: probabilities per call to the store or the engine. */
export interface Weather {
  readonly lostRequests: number;
  readonly lostAnswers: number;
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
  readonly checker: SandboxChecker;
  readonly engine: Engine;
  /** Null: each process has a store of its own, which sees nobody else. */
  readonly leases: MemoryLeases | null;
  readonly ttlMs: number;
  readonly settings: LifecycleSettings;
  readonly weather: Weather;
  readonly mutant: SandboxMutant | undefined;
  /** The whole store, or the engine, does not answer until then. */
  readonly outage: { store: number; engine: number };
  readonly healed: () => boolean;
  readonly crashed: () => void;
}

/** A run notices within this time that its process was stopped, and goes on elsewhere. */
const RUN_LEASE_MS = 15_000;

export interface Listening {
  readonly provider: SandboxLifecycle;
  readonly shared: SharedLeases;
  readonly incarnation: Incarnation;
  /** Fires when the process stops in order. */
  readonly signal: AbortSignal;
}

/**
 * One of the gateways of a world: a row of incarnations of the product's lifecycle provider under one name.
 *
 * States: booting → ready → stopping → down → booting …; a crash leads from any of them to down.
 */
export class SandboxProcess {
  readonly name: string;
  readonly turns = new Set<Turn>();
  /** Turns that still wait for their sandbox. */
  asking = 0;
  /** World time since which nothing has hindered it. */
  calmSince = 0;
  readonly #world: Surrounding;
  #number = 0;
  #incarnation: Incarnation | null = null;
  #provider: ReturnType<typeof createLifecycleProvider> | null = null;
  #shared: SharedLeases | null = null;
  #ready = false;
  #over = false;
  #stopping = new AbortController();
  #cutOffUntil = 0;
  #arrivesAt = 0;
  #clients = new Set<SandboxClient>();

  constructor(name: string, world: Surrounding) {
    this.name = name;
    this.#world = world;
  }

  get listening(): Listening | null {
    if (!this.#ready || this.#provider === null || this.#incarnation === null || this.#shared === null) return null;
    const { signal } = this.#stopping;
    return { provider: this.#provider, shared: this.#shared, incarnation: this.#incarnation, signal };
  }
  /** Sandboxes that it keeps; null while it is down. */
  get kept(): ReturnType<SandboxLifecycle['list']> | null {
    return this.#incarnation?.alive === true && !this.#over && this.#provider !== null ? this.#provider.list() : null;
  }
  get incarnation(): Incarnation | null {
    return this.#incarnation;
  }

  async boot(): Promise<void> {
    const { random, scheduler, chronicle, checker, leases, ttlMs, mutant, settings } = this.#world;
    this.#number += 1;
    this.#over = false;
    this.asking = 0;
    this.calmSince = scheduler.now;
    this.#stopping = new AbortController();
    const clock = {
      now: () => scheduler.now,
      monotonic: () => scheduler.now,
      sleep: () => new Promise<void>(() => {}),
    };
    const own = leases ?? new MemoryLeases(clock, ttlMs);
    const name = `${this.name}${this.#number}`;
    const stored = new MemoryOwnershipStore({ ownerId: name, clock, ttlMs, leases: own });
    const store = mutant?.far?.(stored, own) ?? stored;
    const incarnation = new Incarnation({
      name,
      scheduler,
      random,
      wallOffset: 0,
      fate: (request) => this.#fate(request),
      serve: (request) => this.#serve(request, store),
      heard: (request) => checker.answered(request, false),
      failed: (request) => {
        checker.answered(request, true);
        if (request.port === 'ownership') this.calmSince = Math.max(this.calmSince, scheduler.now);
      },
      // Between two steps of the product anything else may happen: a long task on the loop, a slow turn.
      probe: {
        at: (point) => {
          if (this.#world.healed() || !random.chance(0.2)) return undefined;
          return scheduler.sleep(random.below(point === 'sandbox.before-reserve' ? 8_000 : 500));
        },
      },
      isBeat: (method) => method === 'renew' || method === 'listRunning',
    });
    this.#incarnation = incarnation;
    chronicle.note(() => `${name} BOOTS`);
    const process = this;
    checker.watch({
      incarnation,
      get calmSince() {
        return process.#incarnation === incarnation ? process.calmSince : Number.POSITIVE_INFINITY;
      },
      value: (id: string): OwnershipValue => own.value(id),
      get room() {
        return process.#ready ? settings.replicas - (process.kept?.length ?? 0) - process.asking : 0;
      },
      phase: (id: string) => provider.list().find((kept) => kept.id === id)?.phase ?? null,
    });
    const link = incarnation.link<OwnershipStore>('ownership', {
      ownerId: name,
      // One of its own has nobody else in it (SO-20).
      seesPeers: leases !== null,
      close: async () => {},
    });
    this.#clients = new Set();
    const parts = { ownership: link, backend: backendOf(incarnation, this.#clients) };
    const tools = { random, engine: this.#world.engine, clock: incarnation.surroundings.clock };
    const provider = createLifecycleProvider({
      ...parts,
      ...mutant?.near?.(parts, tools),
      storage: NO_STORAGE,
      surroundings: incarnation.surroundings,
      settings,
      machine: observed(mutant?.machine ?? reduceSandbox, incarnation, checker),
    });
    this.#provider = provider;
    this.#shared = new SharedLeases(provider, incarnation.surroundings.logger);
    await Promise.race([provider.start(), died(incarnation, scheduler)]);
    if (incarnation.alive) this.#ready = true;
  }

  /** As `kill -9`. */
  crash(): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} DIES`);
    this.#world.crashed();
    this.#leave();
    this.#incarnation?.die();
  }

  /** As SIGTERM: turns end, then everything of this process is stopped; bounded. */
  async stop(): Promise<void> {
    const { scheduler, chronicle, settings } = this.#world;
    const incarnation = this.#incarnation;
    const provider = this.#provider;
    // A process that is stopped hears no signal.
    while (incarnation?.alive === true && incarnation.paused) await scheduler.sleep(500);
    if (!this.#ready || incarnation === null || provider === null) return;
    chronicle.note(() => `${incarnation.name} STOPS`);
    this.#ready = false;
    this.#stopping.abort(new Error('The server stops.'));
    for (let waited = 0; this.turns.size > 0 && waited < 20_000; waited += 500) await scheduler.sleep(500);
    for (const turn of this.turns) turn.live = false;
    // Commands that outlast the drain end with their run; what that still asks is not the provider's doing.
    const alone = this.turns.size === 0 && this.asking === 0;
    const asked = scheduler.now;
    let stopped = false;
    void provider.shutdown().then(
      () => {
        stopped = true;
      },
      (error: unknown) => chronicle.broken('SB-66', `the shutdown of ${incarnation.name} failed: ${String(error)}`),
    );
    while (!stopped && incarnation.alive && chronicle.violation === null) {
      await scheduler.sleep(500);
      const took = scheduler.now - asked;
      if (took > settings.drainMs * 2 + STOP_PATIENCE && !incarnation.pausedSince(asked))
        chronicle.broken('SB-66', `the shutdown of ${incarnation.name} takes ${took} ms`);
    }
    this.#over = true;
    if (incarnation.alive && alone) {
      await scheduler.sleep(5);
      const { beats } = incarnation;
      const since = scheduler.now;
      await scheduler.sleep(3 * settings.sweepMs);
      if (incarnation.beats > beats)
        chronicle.broken('ND-03', `${incarnation.name} asked ${incarnation.beats - beats} times after its stop`);
      if (incarnation.sleepingSince(since) > 0 && !incarnation.pausedSince(asked))
        chronicle.broken('L4', `${incarnation.name} has timers of before its stop long after it`);
      const sizes = provider.sizes();
      for (const what of ['heartbeats', 'sections', 'acquires', 'threads', 'clients'])
        if ((sizes[what] ?? 0) > 0 && !incarnation.pausedSince(asked) && this.calmSince < asked)
          chronicle.broken('L4', `${incarnation.name} still has ${sizes[what]} ${what} after its stop`);
      if (this.#clients.size > 0) chronicle.broken('L4', `${incarnation.name} left ${this.#clients.size} clients open`);
    }
    incarnation.die();
  }

  /** As SIGSTOP. Its runs go on elsewhere once their leases have run out. */
  pause(milliseconds: number): void {
    const { scheduler, chronicle } = this.#world;
    chronicle.note(() => `${this.#incarnation?.name} PAUSES for ${milliseconds}`);
    this.#incarnation?.pause(milliseconds);
    this.calmSince = Math.max(this.calmSince, scheduler.now + milliseconds);
    const turns = [...this.turns];
    if (milliseconds > RUN_LEASE_MS)
      scheduler.after(RUN_LEASE_MS, () => {
        for (const turn of turns) turn.live = false;
      });
  }

  /** The store is out of its reach. */
  cutOff(milliseconds: number): void {
    this.#world.chronicle.note(() => `${this.#incarnation?.name} IS CUT OFF for ${milliseconds}`);
    this.#cutOffUntil = this.#world.scheduler.now + milliseconds;
  }

  heal(): void {
    this.#cutOffUntil = 0;
    this.#incarnation?.resume();
  }

  #leave(): void {
    this.#ready = false;
    for (const turn of this.turns) turn.live = false;
    this.turns.clear();
  }

  async #serve(request: Request, store: OwnershipStore): Promise<unknown> {
    const { checker, engine } = this.#world;
    if (request.port === 'engine') return engine.serve(request);
    const method = store[request.method as 'take'] as (...args: unknown[]) => Promise<unknown>;
    const answer = await method.apply(store, [...request.args]);
    checker.granted(request, answer);
    return answer;
  }

  #fate(sent: Omit<Request, 'fate'>): Fate {
    const { random, scheduler, weather, healed, outage, leases, checker } = this.#world;
    checker.sent(sent);
    // A store of this very process: no network is between them.
    if (sent.port === 'ownership' && leases === null) return { there: 0, back: 0, lost: null, outlivesCaller: true };
    const calm = healed();
    const now = scheduler.now;
    if (sent.port === 'engine')
      return {
        there: 1 + random.below(4),
        back: 1 + random.below(4),
        lost: !calm && now < outage.engine ? 'before' : null,
        outlivesCaller: random.chance(0.7),
      };
    const down = now < outage.store || now < this.#cutOffUntil;
    const slow = !calm && random.chance(sent.method === weather.soreMethod ? 0.2 : weather.slowCalls);
    const unreachable = down || random.chance(weather.lostRequests);
    // One connection per process: a later command does not overtake an earlier one, not even one that nobody waits for any more.
    this.#arrivesAt = Math.max(this.#arrivesAt, now + 1 + random.below(slow ? 7_000 : 8));
    return {
      there: this.#arrivesAt - now,
      back: 1 + random.below(slow ? 3_000 : 8),
      lost: calm ? null : unreachable ? 'before' : random.chance(weather.lostAnswers) ? 'after' : null,
      outlivesCaller: random.chance(0.5),
      patience: STORE_OPERATION_MS,
    };
  }
}

/** How long a shutdown may take besides the waits that the settings bound: stops of an engine that is slow. */
const STOP_PATIENCE = 1_200_000;

const NO_STORAGE = {
  files: (): SandboxFiles => {
    throw new ReindeerError('not_implemented', 'There are no files here.');
  },
  prepare: async () => {},
  remove: async () => {},
  close: async () => {},
};

function observed(machine: SandboxMachine, incarnation: Incarnation, checker: SandboxChecker): SandboxMachine {
  return (state, event) => {
    const transition = machine(state, event);
    checker.changed(incarnation, state, event, transition);
    return transition;
  };
}

async function died(incarnation: Incarnation, scheduler: Scheduler): Promise<void> {
  while (incarnation.alive) await scheduler.sleep(1_000);
}

/** The engine as one process reaches it. */
function backendOf(incarnation: Incarnation, open: Set<SandboxClient>): SandboxBackend {
  const engine = incarnation.link<{ exec(info: SandboxInfo, request: ExecRequest): ReturnType<SandboxClient['exec']> }>(
    'engine',
  );
  return incarnation.link<SandboxBackend>('engine', {
    report: () => ({ provider: 'simulated', canExecute: true, network: 'none', limits: [] }),
    connect: (info: SandboxInfo, _identity: SandboxIdentity): SandboxClient => {
      let closed = false;
      const client: SandboxClient = {
        id: info.id,
        canExecute: true,
        pathStyle: 'virtual',
        get files(): SandboxFiles {
          throw new ReindeerError('not_implemented', 'There are no files here.');
        },
        exec: (request) =>
          closed
            ? Promise.reject(new ReindeerError('sandbox_unavailable', 'This client is closed.'))
            : engine.exec(info, request),
        close: async () => {
          closed = true;
          open.delete(client);
        },
      };
      open.add(client);
      return client;
    },
    close: async () => {},
  });
}
