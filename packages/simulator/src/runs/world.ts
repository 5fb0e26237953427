import { MemoryDatabase, openMemory } from '@reindeer/database';
import type { Stores } from '@reindeer/protocol';
import type { Runtime } from '@reindeer/runtime';
import { createRuntime, DEFAULT_SETTINGS } from '@reindeer/runtime';
import type { SeededRandom } from '@reindeer/testkit';
import { seededRandom } from '@reindeer/testkit';
import type { Fate, StoreRequest } from '../world/incarnation.ts';
import { Incarnation } from '../world/incarnation.ts';
import { Scheduler } from '../world/scheduler.ts';
import type { Violation } from '../world/violation.ts';
import { Chronicle } from '../world/violation.ts';
import { Checker } from './checker.ts';
import type { Ask } from './clients.ts';
import { canceller, editor, reader, submitter } from './clients.ts';
import { ASSISTANT, SimulatedSaver, simulatedGraph } from './graph.ts';
import type { Mutant, MutantTools } from './mutants.ts';
import { LONGEST } from './program.ts';

/** All times of a world in milliseconds of virtual time. */
const TROUBLE = 40_000;
const { leaseMs, graceMs, sweepMs } = DEFAULT_SETTINGS;

/**
 * L1: with everything healed, whatever was left behind is terminal after a lease, the grace, a sweep and 5 s, and the time that
 * the work itself takes: at most that of the run, of the run that it replaced, and of waiting for their tools.
 */
export const SETTLES_WITHIN = leaseMs + graceMs + sweepMs + 5_000 + 3 * LONGEST;

/** The longest that clients still ask after everything has healed: four tries and the pauses between them. */
const CLIENT_PATIENCE = 15_000 + 3 * (5_000 + 1_600) + 9_000;

export interface WorldResult {
  readonly violation: Violation | null;
  readonly trace: readonly string[];
  /** Events that happened, for the figures. */
  readonly events: number;
  readonly runs: number;
  readonly effects: number;
  readonly crashes: number;
}

/** How rough a seed is. */
interface Weather {
  readonly lostAnswers: number;
  readonly lostRequests: number;
  readonly slowCalls: number;
  /** Mean time between two troubles of one process. */
  readonly calm: number;
}

/** One of the two processes: a row of incarnations under one instance id. */
interface Process {
  readonly name: string;
  incarnation: Incarnation;
  runtime: Runtime;
  wallOffset: number;
  /** The store cannot be reached from here until then. */
  cutOffUntil: number;
  /** Only renewals fail until then. */
  deafUntil: number;
  stopping: boolean;
  /** Recovery has run: only then does a process listen to clients. */
  ready: boolean;
  /** Fires when the connections of its clients are closed. */
  connections: AbortController;
}

/**
 * The world of runs: two whole runtimes of the product on one shared database, with clients, under crash, restart, orderly
 * restart, pause past the lease, lost requests and answers, slow calls, a store that is out of reach, and clocks that jump within
 * the grace. First trouble (safety), then everything heals and all must come to its end (liveness). A seed fixes it all.
 */
export async function simulateRuns(
  seed: number,
  options: { readonly mutant?: Mutant; readonly trace?: boolean } = {},
): Promise<WorldResult> {
  const random = seededRandom(seed);
  const scheduler = new Scheduler();
  const chronicle = new Chronicle(() => scheduler.now, options.trace ?? false);
  const database = new MemoryDatabase(random);
  const checker = new Checker({ database, chronicle, now: () => scheduler.now, leaseMs, graceMs });
  const tools: MutantTools = { database, random, pause: (milliseconds) => scheduler.sleep(milliseconds) };
  const memory = openMemory({ surroundings: { clock: NO_CLOCK, random, ...QUIET }, database });
  const served = options.mutant?.far?.(memory, tools) ?? memory;
  const weather = randomWeather(random);
  let healed = false;
  let checkpoints = 0;
  let crashes = 0;
  let events = 0;

  const fate =
    (process: () => Process) =>
    ({ method }: StoreRequest): Fate => {
      const slow = !healed && random.chance(weather.slowCalls);
      const { cutOffUntil, deafUntil } = process();
      const outage = scheduler.now < (method === 'renew' ? Math.max(cutOffUntil, deafUntil) : cutOffUntil);
      const lost = healed
        ? null
        : outage || random.chance(weather.lostRequests)
          ? ('before' as const)
          : random.chance(weather.lostAnswers)
            ? ('after' as const)
            : null;
      return {
        there: 1 + random.below(slow ? leaseMs * 1.5 : 6),
        back: 1 + random.below(slow ? leaseMs / 2 : 6),
        lost,
        outlivesCaller: random.chance(0.5),
      };
    };

  const serve = (request: StoreRequest): Promise<unknown> =>
    checker.observe(request, () => {
      const port = served[request.port] as unknown as Record<string, (input: unknown) => Promise<unknown>>;
      return port[request.method]?.(request.input) ?? Promise.reject(new Error(`No method ${request.method}`));
    });

  const boot = async (process: Process, number: number): Promise<void> => {
    const incarnation = new Incarnation({
      name: `${process.name}${number}`,
      number,
      scheduler,
      random,
      fate: fate(() => process),
      serve,
      onAppend: memory.log.onAppend,
      wallOffset: process.wallOffset,
      heard: (request, answer) => checker.heard(request, answer),
    });
    const stores: Stores = options.mutant?.near?.(incarnation.stores, tools) ?? incarnation.stores;
    process.incarnation = incarnation;
    process.stopping = false;
    process.ready = false;
    process.connections = new AbortController();
    process.runtime = createRuntime({
      stores,
      graphs: new Map([[ASSISTANT, simulatedGraph(incarnation, checker)]]),
      surroundings: incarnation.surroundings,
      saverFor: ({ threadId, fence }) =>
        new SimulatedSaver({
          threadId,
          fence,
          stores,
          surroundings: incarnation.surroundings,
          nextId: () => {
            checkpoints += 1;
            return String(checkpoints).padStart(8, '0');
          },
        }),
      // The owner is new at every start; the earlier ones of this process are known to be dead (D12).
      settings: {
        instanceId: incarnation.name,
        deadOwners: Array.from({ length: number - 1 }, (_, before) => `${process.name}${before + 1}`),
      },
    });
    chronicle.note(() => `${incarnation.name} BOOTS`);
    // A process whose store is out of reach at its start tries again, as its operator's supervisor makes it.
    for (;;) {
      try {
        await process.runtime.start();
        if (process.incarnation === incarnation) process.ready = true;
        return;
      } catch {
        await scheduler.sleep(500);
        if (!incarnation.alive) return;
        return boot(process, number + 1);
      }
    }
  };

  const processes: Process[] = [];
  for (const name of ['A', 'B']) {
    const process = {
      name,
      wallOffset: 0,
      cutOffUntil: 0,
      deafUntil: 0,
      stopping: false,
      ready: false,
      connections: new AbortController(),
    } as Process;
    processes.push(process);
    void boot(process, 1);
  }

  const ask: Ask = (work) => {
    const { incarnation, runtime, ready, connections } = random.pick(processes);
    if (!ready) return Promise.reject(new Error('Nobody listens there.'));
    return incarnation.request(() => work(runtime, connections.signal), 1_000 + random.below(healed ? 4_000 : 14_000));
  };
  const parts = {
    random,
    scheduler,
    database,
    checker,
    chronicle,
    ask,
    threads: random.chance(0.5) ? ['t1'] : ['t1', 't2'],
    until: TROUBLE - 5_000,
  };
  let clients = 0;
  const join = (client: Promise<void>): void => {
    clients += 1;
    void client.finally(() => {
      clients -= 1;
    });
  };
  join(submitter(parts, 'c1'));
  join(submitter(parts, 'c2'));
  join(canceller(parts));
  join(reader(parts, 'r1'));
  if (random.chance(0.4)) join(editor(parts));
  for (const process of processes) void trouble(process);

  async function trouble(process: Process): Promise<void> {
    for (;;) {
      await scheduler.sleep(random.below(2 * weather.calm));
      if (healed || scheduler.now > TROUBLE) return;
      const { incarnation } = process;
      const kind = random.below(100);
      if (kind < 25) {
        crashes += 1;
        chronicle.note(() => `${incarnation.name} DIES`);
        process.ready = false;
        incarnation.die();
        await scheduler.sleep(random.chance(0.5) ? random.below(2_000) : random.below(2 * leaseMs));
        await boot(process, incarnation.number + 1);
      } else if (kind < 52) {
        const length = random.chance(0.3) ? random.below(leaseMs) : leaseMs + random.below(2 * leaseMs);
        chronicle.note(() => `${incarnation.name} PAUSES for ${length}`);
        incarnation.pause(length);
      } else if (kind < 66) {
        const length = random.below(2 * leaseMs);
        chronicle.note(() => `${incarnation.name} IS CUT OFF for ${length}`);
        process.cutOffUntil = scheduler.now + length;
      } else if (kind < 80) {
        const length = leaseMs / 2 + random.below(2 * leaseMs);
        chronicle.note(() => `${incarnation.name} CANNOT RENEW for ${length}`);
        process.deafUntil = scheduler.now + length;
      } else if (kind < 90) {
        // Two clocks may differ by the grace: each by half of it.
        process.wallOffset = random.below(graceMs) - graceMs / 2;
        chronicle.note(() => `${incarnation.name} CLOCK at ${process.wallOffset}`);
        incarnation.wallOffset = process.wallOffset;
      } else await restart(process);
    }
  }

  /** As on SIGTERM: stop in order, then begin anew. */
  async function restart(process: Process): Promise<void> {
    const { incarnation, runtime } = process;
    if (process.stopping || !process.ready || !incarnation.alive) return;
    process.stopping = true;
    process.ready = false;
    chronicle.note(() => `${incarnation.name} STOPS`);
    const hardMs = 3_000 + random.below(5_000);
    let stopped = false;
    void runtime.stop({ drainMs: random.below(3_000), hardMs }).then(() => {
      stopped = true;
    });
    // RT-18: bounded, whatever its runs and its store do. A pause or a slow answer on the way does not count.
    const late = scheduler.now + hardMs + 1_000;
    while (!stopped && incarnation.alive) await scheduler.sleep(50);
    if (stopped && scheduler.now > late && !incarnation.resumedSince(late - hardMs - 1_000))
      chronicle.broken('RT-18', `${incarnation.name} took ${scheduler.now - late} ms longer than ${hardMs} ms to stop`);
    process.connections.abort(new Error('The server has stopped.'));
    // ND-03: the loops are over. L4: what was on its way (the end of a tool, a client's last answer) ends soon, and nothing sleeps.
    await scheduler.sleep(5);
    const { beats } = incarnation;
    await scheduler.sleep(9_000);
    if (!incarnation.alive) return;
    if (incarnation.beats > beats)
      chronicle.broken(
        'ND-03',
        `${incarnation.name} renewed or claimed ${incarnation.beats - beats} times after its stop`,
      );
    if (incarnation.sleeping > 0 && !incarnation.resumedSince(late))
      chronicle.broken('L4', `${incarnation.name} has ${incarnation.sleeping} timers long after its stop`);
    incarnation.die();
    await scheduler.sleep(random.below(1_000));
    await boot(process, incarnation.number + 1);
  }

  const heal = (): void => {
    healed = true;
    chronicle.note(() => 'EVERYTHING HEALS');
    for (const process of processes) {
      process.cutOffUntil = 0;
      process.deafUntil = 0;
      process.incarnation.resume();
    }
  };

  const run = async (until: number, done: () => boolean): Promise<void> => {
    while (chronicle.violation === null && !done()) {
      if (!(await scheduler.step(until))) return;
      events += 1;
      if (events % 2_000 === 0) await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };
  const unfinished = (): boolean => [...database.runs.values()].some(({ run: row }) => !row.acknowledged);

  await run(TROUBLE, () => false);
  heal();
  const rested = (): boolean =>
    clients === 0 && processes.every(({ ready, runtime }) => ready && runtime.stats().held === 0) && !unfinished();
  // A client that was answered late may still admit a run; each has at most this long for its last request.
  await run(scheduler.now + CLIENT_PATIENCE + SETTLES_WITHIN, rested);
  if (chronicle.violation === null) {
    checker.atRest();
    for (const { name, runtime } of processes) {
      const { held, leases } = runtime.stats();
      if (held + leases > 0) chronicle.broken('L4', `${name} still holds ${held} runs and ${leases} leases at rest`);
    }
  }
  return {
    violation: chronicle.violation,
    trace: chronicle.lines,
    events,
    runs: database.runs.size,
    effects: [...checker.effects.values()].reduce((sum, count) => sum + count, 0),
    crashes,
  };
}

function randomWeather(random: SeededRandom): Weather {
  const rough = random.next();
  return {
    lostAnswers: random.chance(0.7) ? 0.06 * rough : 0,
    lostRequests: random.chance(0.7) ? 0.06 * rough : 0,
    slowCalls: random.chance(0.7) ? 0.03 * rough : 0,
    calm: 5_000 + random.below(25_000),
  };
}

const NO_CLOCK = { now: () => 0, monotonic: () => 0, sleep: () => new Promise<void>(() => {}) };
const QUIET = {
  probe: { at: () => undefined },
  logger: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
};
