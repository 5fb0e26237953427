import { MemoryDatabase, openMemory } from '@reindeer/database';
import { NO_LOG, NO_PROBE } from '@reindeer/protocol';
import { DEFAULT_SETTINGS } from '@reindeer/runtime';
import type { SeededRandom } from '@reindeer/testkit';
import { seededRandom, TEST_EPOCH } from '@reindeer/testkit';
import { Chronicle } from '../frame/chronicle.ts';
import type { Serve } from '../frame/incarnation.ts';
import { Scheduler } from '../frame/scheduler.ts';
import type { PlayOptions, World, WorldResult } from '../frame/world.ts';
import { Checker } from './checker.ts';
import type { Ask, ClientParts } from './clients.ts';
import { canceller, editor, follower, reader, submitter } from './clients.ts';
import { type MutantTools, RUNS_MUTANTS, type RunsMutant } from './mutants.ts';
import type { Surrounding, Weather } from './process.ts';
import { SimulatedProcess, trouble } from './process.ts';
import { LONGEST } from './program.ts';

/** All times of a world in milliseconds of virtual time. */
const TROUBLE = 40_000;
const { leaseMs, graceMs, sweepMs } = DEFAULT_SETTINGS;

/** With everything healed, a run whose holder is gone has a new one within a lease, the grace, one sweep and 5 s. */
const TAKEN_OVER_WITHIN = leaseMs + graceMs + sweepMs + 5_000;
/**
 * L1: and whatever was left behind is terminal once the work itself is done: at most that of the run, of the run that it replaced,
 * and of waiting for their tools.
 */
const SETTLES_WITHIN = TAKEN_OVER_WITHIN + 3 * LONGEST;
/** The longest that clients still ask after everything has healed: four tries and the pauses between them. */
const CLIENT_PATIENCE = 15_000 + 3 * (5_000 + 1_600) + 9_000;

/**
 * The world of runs: two or three whole runtimes of the product on one shared database, with clients, under crash, restart, orderly
 * restart, pause past the lease, lost requests and answers, slow calls, a store that is out of reach, and clocks that jump within
 * the grace. First trouble (safety), then everything heals and all must come to its end (liveness). A seed fixes it all.
 */
export const runsWorld: World<RunsMutant> = { name: 'runs', mutants: RUNS_MUTANTS, play };

async function play(seed: number, options: PlayOptions<RunsMutant> = {}): Promise<WorldResult> {
  const random = seededRandom(seed);
  const scheduler = new Scheduler();
  const chronicle = new Chronicle(() => scheduler.now, options.trace ?? false);
  const database = new MemoryDatabase(random);
  const checker = new Checker({ database, chronicle, now: () => scheduler.now, leaseMs, graceMs });
  const tools: MutantTools = { database, random, pause: (milliseconds) => scheduler.sleep(milliseconds) };
  let healed = false;
  let crashes = 0;
  let checkpoints = 0;
  let events = 0;

  const memory = openMemory({
    surroundings: { clock: NO_CLOCK, random, probe: NO_PROBE, logger: NO_LOG },
    database,
  });
  const world: Surrounding = {
    random,
    scheduler,
    chronicle,
    checker,
    database,
    serve: serveFrom(options.mutant?.far?.(memory, tools) ?? memory, checker),
    onAppend: memory.log.onAppend,
    around: (surroundings) => options.mutant?.around?.(surroundings) ?? surroundings,
    near: (stores) => options.mutant?.near?.(stores, tools) ?? stores,
    weather: randomWeather(random),
    settings: { leaseMs, graceMs },
    healed: () => healed,
    nextCheckpoint: (now) => {
      checkpoints += 1;
      return `${String(now - TEST_EPOCH + EARLIEST).padStart(7, '0')}-${checkpoints}`;
    },
    crashed: () => {
      crashes += 1;
    },
  };
  const processes = (random.chance(0.35) ? ['A', 'B', 'C'] : ['A', 'B']).map(
    (name) => new SimulatedProcess(name, world),
  );
  for (const process of processes) void process.boot().then(() => trouble(process, world));
  checker.hindered = (owner, since) => processes.every((process) => process.hindered(owner, since));
  const clients = inviteClients(world, processes);

  /** Lets events happen until `until`, or until `done`, or until something is broken. */
  const proceed = async (until: number, done: () => boolean): Promise<void> => {
    while (chronicle.violation === null && !done() && (await scheduler.step(until))) {
      events += 1;
      if (events % 2_000 === 0) await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };
  const atRest = (): boolean =>
    clients() === 0 &&
    processes.every(({ listening }) => listening !== null && listening.runtime.stats().held === 0) &&
    [...database.runs.values()].every(({ run }) => run.acknowledged);

  await proceed(TROUBLE, () => false);
  healed = true;
  chronicle.note(() => 'EVERYTHING HEALS');
  for (const process of processes) process.heal();
  await proceed(TROUBLE + TAKEN_OVER_WITHIN, atRest);
  checker.nobodyWaits(TEST_EPOCH + scheduler.now, sweepMs + 5_000);
  // A client that was answered late may still admit a run.
  await proceed(scheduler.now + CLIENT_PATIENCE + SETTLES_WITHIN, atRest);
  if (chronicle.violation === null) {
    checker.nobodyReads();
    checker.atRest();
    for (const { name, listening } of processes) {
      const { held, leases } = listening?.runtime.stats() ?? { held: 0, leases: 0 };
      if (held + leases > 0) chronicle.broken('L4', `${name} still holds ${held} runs and ${leases} leases at rest`);
    }
  }
  return {
    violation: chronicle.violation,
    trace: chronicle.lines,
    figures: {
      runs: database.runs.size,
      'tool effects': [...checker.effects.values()].reduce((sum, count) => sum + count, 0),
      crashes,
      events,
    },
  };
}

/** The database at the other end of the network, with the checker at its door. */
function serveFrom(stores: ReturnType<typeof openMemory>, checker: Checker): Serve {
  return (request) =>
    checker.observe(request, () => {
      const port = stores[request.port as 'runs'] as unknown as Record<string, (input: unknown) => Promise<unknown>>;
      return port[request.method]?.(request.input) ?? Promise.reject(new Error(`No method ${request.method}`));
    });
}

/** Sends the clients into the world. Answers how many of them are still at it. */
function inviteClients(world: Surrounding, processes: readonly SimulatedProcess[]): () => number {
  const { random } = world;
  const ask: Ask = (work) => {
    const { listening } = random.pick(processes);
    if (listening === null) return Promise.reject(new Error('Nobody listens there.'));
    const patience = 1_000 + random.below(world.healed() ? 4_000 : 14_000);
    return listening.incarnation.request(() => work(listening.runtime, listening.signal), patience);
  };
  const parts: ClientParts = {
    ...world,
    ask,
    reach: () => random.pick(processes).listening,
    threads: random.chance(0.5) ? ['t1'] : ['t1', 't2'],
    until: TROUBLE - 5_000,
  };
  let active = 0;
  const join = (client: Promise<void>): void => {
    active += 1;
    void client.finally(() => {
      active -= 1;
    });
  };
  join(submitter(parts, 'c1'));
  join(submitter(parts, 'c2'));
  join(canceller(parts));
  join(reader(parts, 'r1'));
  join(follower(parts, 'f1'));
  if (random.chance(0.5)) join(follower(parts, 'f2'));
  if (random.chance(0.4)) join(editor(parts));
  return () => active;
}

const SORE_METHODS = ['finalize', 'start', 'begin', 'finish', 'put', 'renew', 'claimOrphans', 'admit', 'none'] as const;

function randomWeather(random: SeededRandom): Weather {
  const rough = random.next();
  return {
    lostAnswers: random.chance(0.7) ? 0.06 * rough : 0,
    lostRequests: random.chance(0.7) ? 0.06 * rough : 0,
    slowCalls: random.chance(0.7) ? 0.03 * rough : 0,
    soreMethod: random.pick(SORE_METHODS),
    calm: 5_000 + random.below(25_000),
  };
}

/** Keeps ids of checkpoints of one length, however far a clock is behind. */
const EARLIEST = 1_000_000;

/** The database itself needs no time. */
const NO_CLOCK = { now: () => 0, monotonic: () => 0, sleep: () => new Promise<void>(() => {}) };
