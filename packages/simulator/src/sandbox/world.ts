import type { SandboxSummary } from '@reindeer/protocol';
import { DEFAULT_LIFECYCLE_SETTINGS, type LifecycleSettings, leaseTtlMs, MemoryLeases } from '@reindeer/sandbox';
import type { SeededRandom } from '@reindeer/testkit';
import { seededRandom } from '@reindeer/testkit';
import { Chronicle } from '../frame/chronicle.ts';
import { Scheduler } from '../frame/scheduler.ts';
import type { PlayOptions, World, WorldResult } from '../frame/world.ts';
import { SandboxChecker } from './checker.ts';
import { Engine, type EngineWeather } from './engine.ts';
import { Watch } from './liveness.ts';
import { SANDBOX_MUTANTS, type SandboxMutant } from './mutants.ts';
import { SandboxProcess, type Surrounding, type Weather } from './process.ts';
import { lastTurn, visitor } from './users.ts';

/** All times of a world in milliseconds of virtual time. */
const TROUBLE = 1_200_000;

export const sandboxWorld: World<SandboxMutant> = { name: 'sandbox', mutants: SANDBOX_MUTANTS, play };

/**
 * The world of sandboxes: gateways with the product's lifecycle provider, each with its own client of one ownership store, on one
 * simulated engine; threads that move between them; crash, restart, orderly stop, pause, outage of the store or the engine, a store
 * that forgets everything, slow and failing stops, containers that die. In a fifth of the seeds there is one gateway with a store of
 * its own. First trouble (safety), then everything heals and all must come to its end (liveness).
 */
async function play(seed: number, options: PlayOptions<SandboxMutant> = {}): Promise<WorldResult> {
  const random = seededRandom(seed);
  const scheduler = new Scheduler();
  const chronicle = new Chronicle(() => scheduler.now, options.trace ?? false);
  const settings = randomSettings(random);
  const ttlMs = leaseTtlMs(settings);
  const alone = random.chance(0.2);
  const clock = { now: () => scheduler.now, monotonic: () => scheduler.now, sleep: () => new Promise<void>(() => {}) };
  const leases = alone ? null : new MemoryLeases(clock, ttlMs);
  const checker = new SandboxChecker(chronicle, () => scheduler.now, { ...settings, ttlMs });
  checker.sleep = (milliseconds) => scheduler.sleep(milliseconds);
  let healed = false;
  let crashes = 0;
  let events = 0;
  const engine = new Engine({
    scheduler,
    random,
    weather: randomEngine(random, ttlMs),
    healed: () => healed,
    watch: checker,
  });
  checker.runs = (id, url) => {
    const container = engine.containers.get(id);
    return container?.state === 'running' && container.info.url === url;
  };
  const world: Surrounding = {
    random,
    scheduler,
    chronicle,
    checker,
    engine,
    leases,
    ttlMs,
    settings,
    weather: randomWeather(random),
    mutant: options.mutant,
    outage: { store: 0, engine: 0 },
    healed: () => healed,
    crashed: () => {
      crashes += 1;
    },
  };
  const processes = (alone ? ['A'] : ['A', 'B']).map((name) => new SandboxProcess(name, world));
  const watch = new Watch(world, processes);
  let troubled = processes.length;
  for (const process of processes)
    void process
      .boot()
      .then(() => trouble(process, world))
      .then(() => {
        troubled -= 1;
      });
  void mischief(world, processes);
  void watch.start();
  const threads = ['t1', 't2', 't3', 't4', 't5', 't6', 't7'].slice(0, 1 + random.below(random.chance(0.2) ? 7 : 3));
  let visitors = threads.length;
  for (const threadId of threads)
    void visitor(world, processes, threadId, TROUBLE - 60_000).then(() => {
      visitors -= 1;
    });

  /** Lets events happen until `until`, or until `done`, or until something is broken. */
  const proceed = async (until: number, done: () => boolean = () => false): Promise<void> => {
    while (chronicle.violation === null && !done() && (await scheduler.step(until))) {
      events += 1;
      if (events % 2_000 === 0) await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };

  await proceed(TROUBLE);
  healed = true;
  chronicle.note(() => 'EVERYTHING HEALS');
  world.outage.store = 0;
  world.outage.engine = 0;
  for (const process of processes) process.heal();
  // Troubles that had begun come to their end: every process listens again.
  await proceed(
    scheduler.now + 3_600_000,
    () =>
      visitors + troubled === 0 &&
      processes.every(({ listening }) => listening !== null) &&
      [...engine.containers.values()].every(({ stops }) => stops.size === 0),
  );
  if (chronicle.violation === null && processes.some(({ listening }) => listening === null))
    chronicle.broken('L1', 'a process did not come back');
  watch.heals();
  // Some never come back: what they left is for adoption alone.
  const back = threads.filter(() => random.chance(0.7));
  let waiting = back.length;
  for (const threadId of back)
    void lastTurn(world, processes, threadId).then(() => {
      waiting -= 1;
    });
  await proceed(scheduler.now + 900_000, () => waiting === 0);
  await proceed(scheduler.now + watch.restsWithin());
  watch.atRest();
  for (const process of processes) await stopped(process, proceed, scheduler);
  watch.afterwards();
  return {
    violation: chronicle.violation,
    trace: chronicle.lines,
    figures: {
      turns: checker.turns,
      commands: checker.commands,
      'containers started': engine.created,
      'containers stopped': engine.stopped,
      crashes,
      events,
    },
  };
}

async function stopped(
  process: SandboxProcess,
  proceed: (until: number, done: () => boolean) => Promise<void>,
  scheduler: Scheduler,
): Promise<void> {
  let over = false;
  void process.stop().then(() => {
    over = true;
  });
  await proceed(scheduler.now + 3_600_000, () => over);
}

/** Gives a process trouble of every kind until the world heals. */
async function trouble(process: SandboxProcess, world: Surrounding): Promise<void> {
  const { random, scheduler, weather, healed, ttlMs } = world;
  for (;;) {
    await scheduler.sleep(random.below(2 * weather.calm));
    if (healed()) return;
    const kind = random.below(100);
    if (kind < 25) {
      process.crash();
      await scheduler.sleep(random.chance(0.5) ? random.below(10_000) : random.below(2 * ttlMs));
      await process.boot();
    } else if (kind < 55) process.pause(random.chance(0.4) ? random.below(ttlMs) : ttlMs + random.below(2 * ttlMs));
    else if (kind < 75) process.cutOff(random.chance(0.5) ? random.below(ttlMs) : random.below(3 * ttlMs));
    else {
      await process.stop();
      await scheduler.sleep(random.below(20_000));
      await process.boot();
    }
  }
}

/** Trouble that belongs to no process: the store, the engine, the containers. */
async function mischief(world: Surrounding, processes: readonly SandboxProcess[]): Promise<void> {
  const { random, scheduler, weather, healed, ttlMs, leases, outage, chronicle, checker, engine } = world;
  for (;;) {
    await scheduler.sleep(random.below(2 * weather.calm));
    if (healed()) return;
    const kind = random.below(100);
    if (kind < 30 && leases !== null) {
      chronicle.note(() => 'THE STORE FORGETS EVERYTHING');
      checker.flushed(keptBy(processes));
      leases.clear();
      for (const process of processes) process.calmSince = Math.max(process.calmSince, scheduler.now);
    } else if (kind < 55 && leases !== null) {
      const milliseconds = random.chance(0.5) ? random.below(30_000) : random.below(2 * ttlMs);
      chronicle.note(() => `THE STORE IS DOWN for ${milliseconds}`);
      outage.store = scheduler.now + milliseconds;
    } else if (kind < 75) {
      const milliseconds = random.below(60_000);
      chronicle.note(() => `THE ENGINE IS DOWN for ${milliseconds}`);
      outage.engine = scheduler.now + milliseconds;
    } else {
      const ids = [...engine.containers.keys()];
      if (ids.length === 0) continue;
      const id = random.pick(ids);
      chronicle.note(() => `CONTAINER ${id.slice(0, 4)} DIES`);
      engine.lose(id, random.chance(0.5));
    }
  }
}

/** How many instances keep each id. */
function keptBy(processes: readonly SandboxProcess[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { kept } of processes)
    for (const { id } of kept ?? ([] as readonly SandboxSummary[])) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}

const SORE_METHODS = ['take', 'claim', 'renew', 'release', 'owner', 'none'] as const;

function randomWeather(random: SeededRandom): Weather {
  const rough = random.next();
  return {
    lostRequests: random.chance(0.6) ? 0.06 * rough : 0,
    lostAnswers: random.chance(0.6) ? 0.06 * rough : 0,
    slowCalls: random.chance(0.7) ? 0.03 * rough : 0,
    soreMethod: random.pick(SORE_METHODS),
    calm: 40_000 + random.below(500_000),
  };
}

function randomEngine(random: SeededRandom, ttlMs: number): EngineWeather {
  return {
    slowStops: random.chance(0.6) ? 0.3 : 0,
    slowStopMs: random.chance(0.5) ? 3 * ttlMs : 30_000,
    failingStops: random.chance(0.5) ? 0.15 : 0,
    failingCreates: random.chance(0.5) ? 0.1 : 0,
    neverReady: random.chance(0.5) ? 0.1 : 0,
  };
}

function randomSettings(random: SeededRandom): LifecycleSettings {
  return {
    ...DEFAULT_LIFECYCLE_SETTINGS,
    idleTimeoutMs: random.pick([0, 40_000, 90_000, 300_000]),
    replicas: 1 + random.below(3),
    overflow: random.pick(['burst', 'burst', 'wait']),
  };
}
