import { MemoryDatabase, openMemory } from '@reindeer/database';
import {
  type BatchExecutor,
  type BatchStore,
  type ItemResult,
  isBatchOver,
  NO_BATCH_USAGE,
  NO_LOG,
  NO_PROBE,
  ReindeerError,
} from '@reindeer/protocol';
import { BatchWorker, DEFAULT_BATCH_SETTINGS, ResultKeeper } from '@reindeer/runtime';
import { type SeededRandom, seededRandom, TEST_EPOCH } from '@reindeer/testkit';
import { Chronicle } from '../frame/chronicle.ts';
import { type Fate, Incarnation, type Request } from '../frame/incarnation.ts';
import { Scheduler } from '../frame/scheduler.ts';
import type { PlayOptions, World, WorldResult } from '../frame/world.ts';
import { BatchChecker, CLOCK_MS } from './checker.ts';
import { BATCH_MUTANTS, type BatchMutant, type BatchTools } from './mutants.ts';

/** All times of a world in milliseconds of virtual time. */
const TROUBLE = 60_000;
const LEASE = 10_000;
/** The longest that one child works, and that it takes to end after it was told to. */
const LONGEST_WORK = 14_000;
const LONGEST_STOP = 6_000;
/** A renewal that was granted before a cancel holds this long at most. */
const HEARD_WITHIN = LEASE;
/** With everything healed: leases run out, every item has all its attempts one after the other. */
const SETTLES_WITHIN = 15 * 60_000;
const USER = 'user';

/**
 * The world of batches: three workers of the product on one shared database, with users who cancel, pause, resume and retry, under crash, restart,
 * orderly stop, pause past the lease, lost and slow calls, a store out of reach, and clocks that differ. First trouble (safety), then
 * everything heals and every item must come to its end (liveness).
 */
export const batchWorld: World<BatchMutant> = { name: 'batch', mutants: BATCH_MUTANTS, play };

const SORE = ['finish', 'start', 'release', 'claim', 'renew', 'none'] as const;

interface Weather {
  readonly lost: number;
  readonly slow: number;
  readonly calm: number;
  readonly failing: number;
  /** Calls of this method are slow much more often: each seed has its own sore spot. */
  readonly sore: string;
}

interface Scene {
  readonly random: SeededRandom;
  readonly scheduler: Scheduler;
  readonly chronicle: Chronicle;
  readonly checker: BatchChecker;
  readonly database: MemoryDatabase;
  readonly store: BatchStore;
  readonly weather: Weather;
  readonly mutant: BatchMutant | undefined;
  healed: boolean;
  crashes: number;
}

async function play(seed: number, options: PlayOptions<BatchMutant> = {}): Promise<WorldResult> {
  const random = seededRandom(seed);
  const scheduler = new Scheduler();
  const chronicle = new Chronicle(() => scheduler.now, options.trace ?? false);
  const database = new MemoryDatabase(random);
  const checker = new BatchChecker({
    database,
    chronicle,
    now: () => scheduler.now,
    after: (milliseconds, run) => void scheduler.after(milliseconds, run),
  });
  const stores = openMemory({
    surroundings: { clock: NO_CLOCK, random, probe: NO_PROBE, logger: NO_LOG },
    database,
  });
  const tools: BatchTools = { database, random };
  const { mutant } = options;
  const rough = random.next();
  const scene: Scene = {
    random,
    scheduler,
    chronicle,
    checker,
    database,
    store: mutant?.far?.(stores.batches, tools) ?? stores.batches,
    weather: {
      lost: random.chance(0.7) ? 0.06 * rough : 0,
      slow: random.chance(0.7) ? 0.04 * rough : 0,
      calm: 4_000 + random.below(20_000),
      failing: random.chance(0.5) ? 0.3 : 0.05,
      sore: random.pick(SORE),
    },
    mutant,
    healed: false,
    crashes: 0,
  };
  await stores.threads.create({ threadId: 'thread', userId: USER, metadata: {}, now: TEST_EPOCH });
  const batches = await createBatches(scene, stores.batches);
  const processes = ['A', 'B', 'C'].slice(0, 2 + random.below(2)).map((name) => new BatchProcess(name, scene));
  for (const process of processes) void process.boot().then(() => trouble(process, scene));
  void users(scene, stores.batches, batches);

  let events = 0;
  const proceed = async (until: number, done: () => boolean): Promise<void> => {
    while (chronicle.violation === null && !done() && (await scheduler.step(until))) {
      events += 1;
      if (events % 2_000 === 0) await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };
  const atRest = (): boolean =>
    [...database.batches.values()].every(({ batch }) => isBatchOver(batch.status)) &&
    processes.every((process) => process.idle) &&
    checker.live === 0;
  await proceed(TROUBLE, () => false);
  scene.healed = true;
  chronicle.note(() => 'EVERYTHING HEALS');
  for (const process of processes) process.heal();
  for (const batchId of batches)
    await checker.control(`resume ${batchId}`, () =>
      stores.batches.resume({ batchId, userId: USER, now: TEST_EPOCH + scheduler.now }),
    );
  await proceed(TROUBLE + SETTLES_WITHIN, atRest);
  if (chronicle.violation === null) {
    checker.atRest();
    for (const process of processes)
      if (!process.idle) chronicle.broken('L3', `${process.name} still works on something at rest`);
  }
  return {
    violation: chronicle.violation,
    trace: chronicle.lines,
    figures: { items: database.batchItems.size, children: checker.begun, crashes: scene.crashes, events },
  };
}

async function createBatches({ random }: Scene, store: BatchStore): Promise<readonly string[]> {
  const ids = random.chance(0.5) ? ['b1'] : ['b1', 'b2'];
  for (const batchId of ids) {
    const count = 2 + random.below(5);
    const maxRunning = 1 + random.below(3);
    await store.create({
      batchId,
      userId: USER,
      threadId: 'thread',
      runId: null,
      toolCallId: null,
      submissionKey: batchId,
      title: batchId,
      subagentType: 'general-purpose',
      maxLive: maxRunning + random.below(3),
      maxRunning,
      maxAttempts: 1 + random.below(3),
      spec: {},
      notify: false,
      items: Array.from({ length: count }, (_, n) => ({ key: `k${n}`, prompt: 'work' })),
      now: TEST_EPOCH,
    });
  }
  return ids;
}

/** People who change their minds. */
async function users(scene: Scene, store: BatchStore, batches: readonly string[]): Promise<void> {
  const { random, scheduler, checker, database } = scene;
  for (;;) {
    await scheduler.sleep(1_000 + random.below(12_000));
    if (scene.healed) return;
    const address = { batchId: random.pick(batches), userId: USER, now: TEST_EPOCH + scheduler.now };
    const items = database.batches.get(address.batchId)?.items ?? [];
    const itemId = items.length === 0 ? '' : random.pick(items).itemId;
    const kind = random.below(100);
    if (kind < 30) await checker.control(`pause ${address.batchId}`, () => store.pause(address));
    else if (kind < 65) await checker.control(`resume ${address.batchId}`, () => store.resume(address));
    else if (kind < 80) {
      const { outcome } = await checker.control(`cancelItem ${itemId}`, () => store.cancelItem({ ...address, itemId }));
      if (outcome === 'done') checker.cancelled((id) => id === itemId, HEARD_WITHIN);
    } else if (kind < 95) await checker.control(`retryItem ${itemId}`, () => store.retryItem({ ...address, itemId }));
    else {
      const { outcome } = await checker.control(`cancel ${address.batchId}`, () => store.cancel(address));
      if (outcome === 'done') checker.cancelled((id) => id.startsWith(`${address.batchId}.`), HEARD_WITHIN);
    }
  }
}

/** One of the processes of the world: a row of incarnations of the product's worker under one name. */
class BatchProcess {
  readonly name: string;
  readonly #scene: Scene;
  #number = 0;
  #incarnation: Incarnation | null = null;
  #worker: BatchWorker | null = null;
  #cutOffUntil = 0;
  #deafUntil = 0;
  #offset = 0;

  constructor(name: string, scene: Scene) {
    this.name = name;
    this.#scene = scene;
  }

  get idle(): boolean {
    return this.#worker !== null && this.#worker.size === 0;
  }

  async boot(): Promise<void> {
    const { chronicle, scheduler } = this.#scene;
    for (;;) {
      const incarnation = this.#begin();
      chronicle.note(() => `${incarnation.name} BOOTS`);
      try {
        await this.#worker?.start();
        return;
      } catch {
        this.#end();
        await scheduler.sleep(500);
      }
    }
  }

  crash(): void {
    this.#scene.chronicle.note(() => `${this.#incarnation?.name} DIES`);
    this.#scene.crashes += 1;
    this.#end();
  }

  async stop(): Promise<void> {
    const { random, scheduler, chronicle } = this.#scene;
    const [incarnation, worker] = [this.#incarnation, this.#worker];
    if (incarnation === null || worker === null || !incarnation.alive) return;
    chronicle.note(() => `${incarnation.name} STOPS`);
    const hardMs = 4_000 + random.below(8_000);
    const asked = scheduler.now;
    let stopped = false;
    void worker.stop({ drainMs: random.below(3_000), hardMs }).then(() => {
      stopped = true;
    });
    while (!stopped) await scheduler.sleep(50);
    if (scheduler.now - asked > hardMs + 1_000 && !incarnation.pausedSince(asked))
      chronicle.broken('L4', `${incarnation.name} took ${scheduler.now - asked} ms to stop, and may take ${hardMs}`);
    this.#end();
  }

  pause(milliseconds: number): void {
    this.#scene.chronicle.note(() => `${this.#incarnation?.name} PAUSES for ${milliseconds}`);
    this.#incarnation?.pause(milliseconds);
  }

  cutOff(milliseconds: number): void {
    this.#scene.chronicle.note(() => `${this.#incarnation?.name} IS CUT OFF for ${milliseconds}`);
    this.#cutOffUntil = this.#scene.scheduler.now + milliseconds;
  }

  deafen(milliseconds: number): void {
    this.#scene.chronicle.note(() => `${this.#incarnation?.name} CANNOT RENEW for ${milliseconds}`);
    this.#deafUntil = this.#scene.scheduler.now + milliseconds;
  }

  setClock(offset: number): void {
    this.#offset = offset;
    if (this.#incarnation !== null) this.#incarnation.wallOffset = offset;
  }

  heal(): void {
    this.#cutOffUntil = 0;
    this.#deafUntil = 0;
    this.#incarnation?.resume();
  }

  #end(): void {
    const incarnation = this.#incarnation;
    if (incarnation === null) return;
    incarnation.die();
    this.#scene.checker.died(incarnation);
  }

  #begin(): Incarnation {
    const { random, scheduler, checker, store, mutant } = this.#scene;
    this.#number += 1;
    const incarnation = new Incarnation({
      name: `${this.name}${this.#number}`,
      scheduler,
      random,
      serve: (request) =>
        checker.observe(request, () => {
          const port = store as unknown as Record<string, (input: unknown) => Promise<unknown>>;
          return port[request.method]?.(request.input) ?? Promise.reject(new Error(`No method ${request.method}`));
        }),
      fate: (request) => this.#fate(request),
      wallOffset: this.#offset,
    });
    const link = incarnation.link<BatchStore>('batches');
    const near = mutant?.near?.(methodsOf(link), incarnation.name) ?? link;
    const settings = { ...DEFAULT_BATCH_SETTINGS, leaseMs: LEASE, drainMs: 8_000, maxRunningHere: 4 };
    const executor = children(incarnation, this.#scene);
    this.#incarnation = incarnation;
    this.#worker = new BatchWorker({
      store: near,
      executor: mutant?.executor?.(executor) ?? executor,
      results: new ResultKeeper(null, settings, NO_LOG),
      surroundings: mutant?.around?.(incarnation.surroundings) ?? incarnation.surroundings,
      settings,
      instanceId: this.name,
      onChange: () => {},
    });
    return incarnation;
  }

  #fate({ method }: Pick<Request, 'method'>): Fate {
    const { random, scheduler, weather, healed } = this.#scene;
    const slow = !healed && random.chance(method === weather.sore ? 0.25 : weather.slow);
    const deaf = method === 'renew' && scheduler.now < this.#deafUntil;
    const unreachable = deaf || scheduler.now < this.#cutOffUntil || random.chance(weather.lost);
    const lost = unreachable ? 'before' : random.chance(weather.lost) ? 'after' : null;
    return {
      there: 1 + random.below(slow ? LEASE * 1.5 : 6),
      back: 1 + random.below(slow ? LEASE / 2 : 6),
      lost: healed ? null : lost,
      outlivesCaller: random.chance(0.5),
    };
  }
}

/** Children that take their time, fail now and then, and end some time after they were told to. */
function children(incarnation: Incarnation, scene: Scene): BatchExecutor {
  const { random, weather, checker } = scene;
  return {
    async prepare({ item, signal }) {
      await incarnation.work(random.below(random.chance(0.2) ? LEASE * 1.2 : 800));
      if (random.chance(0.05)) throw new ReindeerError('over_capacity', 'No room.', { retryable: true });
      signal.throwIfAborted();
      return {
        async run(): Promise<ItemResult> {
          const { itemId, epoch } = item.lease;
          const child = checker.begin(itemId, epoch, incarnation, signal);
          const stopped = new Promise<void>((resolve) => {
            if (signal.aborted) resolve();
            else signal.addEventListener('abort', () => resolve(), { once: true });
          });
          await Promise.race([incarnation.work(random.below(LONGEST_WORK)), stopped]);
          if (signal.aborted) await incarnation.work(random.below(random.chance(0.3) ? LONGEST_STOP : 500));
          const answer = `${itemId}#${epoch}`;
          const good = !random.chance(weather.failing);
          checker.end(child, answer);
          const end = { stopReason: null, modelName: null, usage: NO_BATCH_USAGE };
          return good
            ? { outcome: 'succeeded', result: answer, ...end }
            : { outcome: 'failed', error: 'broken', ...end };
        },
        forget: async () => {},
      };
    },
  };
}

/** Gives a process trouble of every kind until the world heals. */
async function trouble(process: BatchProcess, scene: Scene): Promise<void> {
  const { random, scheduler, weather } = scene;
  for (;;) {
    await scheduler.sleep(random.below(2 * weather.calm));
    if (scene.healed) return;
    const kind = random.below(100);
    if (kind < 28) {
      process.crash();
      await scheduler.sleep(random.chance(0.5) ? random.below(2_000) : random.below(2 * LEASE));
      await process.boot();
    } else if (kind < 52) process.pause(random.chance(0.3) ? random.below(LEASE) : LEASE + random.below(2 * LEASE));
    else if (kind < 66) process.cutOff(random.below(2 * LEASE));
    else if (kind < 80) process.deafen(LEASE / 2 + random.below(2 * LEASE));
    // Two clocks may differ by a second: each by half of it.
    else if (kind < 90) process.setClock(random.below(2 * CLOCK_MS) - CLOCK_MS);
    else {
      await process.stop();
      await scheduler.sleep(random.below(1_000));
      await process.boot();
    }
  }
}

/** A link answers any name; a mutant that spreads it needs those that there are. */
function methodsOf(link: BatchStore): BatchStore {
  const names = ['claim', 'renew', 'start', 'finish', 'release', 'forfeit'] as const;
  return { ...link, ...Object.fromEntries(names.map((name) => [name, (input: never) => link[name](input)])) };
}

/** The database itself needs no time. */
const NO_CLOCK = { now: () => 0, monotonic: () => 0, sleep: () => new Promise<void>(() => {}) };
