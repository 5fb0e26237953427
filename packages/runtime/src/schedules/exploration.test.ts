import { MemoryDatabase, openMemory } from '@reindeer/database';
import { type CreateRun, NO_USAGE, type Run, type Stores } from '@reindeer/protocol';
import { flush, seededRandom, testSurroundings, VirtualClock, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { LocalScheduleService } from './service.ts';

/**
 * Whole lives of schedules over two instances that die at any point of a launch, answers that get lost, and clocks that are set: whatever happens,
 * a time makes one run at most, none of a schedule are at work at once, no more than the limit altogether, and every time comes in the end.
 */
const MINUTE = 60_000;
const SEEDS = 150;

class Crash extends Error {}

for (const name of ['a time is taken once and never lost'])
  test(name, { timeout: 60_000, ...verifies('SCH-2', 'SCH-3') }, async () => {
    for (let seed = 1; seed <= SEEDS; seed += 1) await live(seed);
  });

async function live(seed: number): Promise<void> {
  const random = seededRandom(seed);
  const clock = new VirtualClock();
  const database = new MemoryDatabase(random);
  const maxRuns = 1 + Math.floor(random.next() * 3);
  const chance = (of: number): boolean => random.next() < of;
  const runs: Run[] = [];

  const admit =
    (stores: Stores) =>
    async (input: CreateRun): Promise<Awaited<ReturnType<Stores['runs']['admit']>>> => {
      const threadId = input.threadId ?? '';
      const now = clock.now();
      const answer = await stores.runs.admit({
        ...input,
        threadId,
        kind: 'run',
        runId: random.uuid(),
        crashPolicy: 'resume',
        payloadHash: JSON.stringify(input.request),
        owner: 'worker',
        token: random.uuid(),
        leaseExpiresAt: now + 1e9,
        now,
      });
      if (answer.outcome === 'admitted') runs.push(answer.run);
      // It was admitted, and nobody hears of it.
      if (chance(0.1)) throw new Crash();
      return answer;
    };

  const instance = (n: number): LocalScheduleService => {
    const surroundings = { ...testSurroundings({ seed: seed * 100 + n, clock }), probe: { at: crashing } };
    const stores = openMemory({ surroundings, database });
    const schedules = {
      ...stores.schedules,
      // The write was done, and its answer is lost.
      launched: async (input: Parameters<Stores['schedules']['launched']>[0]) => {
        const told = await stores.schedules.launched(input);
        if (chance(0.1)) throw new Crash();
        return told;
      },
    };
    return new LocalScheduleService({
      store: schedules,
      runs: { create: admit(stores) as never },
      threads: { get: async () => null },
      surroundings,
      settings: { maxRuns },
    });
  };
  function crashing(): Promise<void> | undefined {
    return chance(0.15) ? Promise.reject(new Crash()) : undefined;
  }

  const stores = openMemory({ surroundings: testSurroundings({ seed, clock }), database });
  const instances = [instance(1), instance(2)];
  const of: string[] = [];
  for (let n = 0; n < 3; n += 1) {
    const made = await instances[0]?.create('ann', {
      title: 't',
      prompt: `prompt ${n}`,
      cron: n === 0 ? '*/5 * * * *' : '*/7 * * * *',
      timezone: 'UTC',
      contextMode: 'fresh_thread_per_run',
      threadId: null,
      assistantId: 'a',
      context: {},
    });
    of.push(made?.scheduleId ?? '');
  }
  const end = async (part: number): Promise<void> => {
    for (const run of runs.splice(0)) {
      if (!chance(part)) {
        runs.push(run);
        continue;
      }
      const fence = { runId: run.runId, token: database.runs.get(run.runId)?.token ?? '' };
      await stores.runs.start({ fence, checkpointBefore: '', now: clock.now() });
      const base = { fence, error: null, stopReason: null, usage: NO_USAGE, unlessCancelled: false, now: clock.now() };
      await stores.runs.finalize({ ...base, status: chance(0.8) ? 'success' : 'error' });
    }
  };
  const look = async (): Promise<void> => {
    const looks = instances.filter(() => chance(0.8)).map((one) => one.pass().catch(ignoreCrash));
    await Promise.all(looks);
    await check();
  };
  const check = async (): Promise<void> => {
    const active = [...database.runs.values()].filter(({ run }) => !run.acknowledged);
    const bySchedule = active.map(({ run }) => run.metadata.schedule_id);
    expect(new Set(bySchedule).size, `seed ${seed}: two runs of one schedule at once`).toBe(bySchedule.length);
    expect(active.length, `seed ${seed}: too many at once`).toBeLessThanOrEqual(maxRuns);
    const occurrences = [...database.runs.values()].map(({ run }) => run.metadata.occurrence_id);
    expect(new Set(occurrences).size, `seed ${seed}: two runs of one occurrence`).toBe(occurrences.length);
  };

  for (let step = 0; step < 40; step += 1) {
    clock.jump(MINUTE * Math.floor(random.next() * 4));
    if (chance(0.05)) clock.jump(-20 * MINUTE);
    await look();
    await end(0.5);
    await flush();
  }
  // Nothing fails any more: every launch that was begun is finished, and the next times come.
  const calm = new LocalScheduleService({
    store: stores.schedules,
    runs: {
      create: async (input) => {
        const count = runs.length;
        for (;;) {
          try {
            return (await admit(stores)(input)) as never;
          } catch (error) {
            ignoreCrash(error);
            if (runs.length > count + 1) throw new Error(`seed ${seed}: a repeated launch made another run`);
          }
        }
      },
    },
    threads: { get: async () => null },
    surroundings: testSurroundings({ seed, clock }),
    settings: { maxRuns },
  });
  const before = new Map<string, number>();
  for (let round = 0; round < 12; round += 1) {
    clock.jump(21 * MINUTE);
    await calm.pass();
    await end(1);
    await check();
    for (const scheduleId of of) {
      const found = await stores.schedules.get({ scheduleId, userId: 'ann' });
      if (round === 3) before.set(scheduleId, found?.runCount ?? 0);
    }
  }
  await calm.pass();
  for (const scheduleId of of) {
    const found = await stores.schedules.get({ scheduleId, userId: 'ann' });
    expect(found?.runCount, `seed ${seed}: a schedule starves`).toBeGreaterThan(before.get(scheduleId) ?? 0);
    const history = await stores.schedules.occurrences({ scheduleId, userId: 'ann', limit: 200, offset: 0 });
    const left = (history ?? []).filter(({ status }) => status === 'queued');
    expect(left, `seed ${seed}: an occurrence was never launched`).toEqual([]);
    const times = (history ?? []).filter(({ trigger }) => trigger === 'scheduled').map((one) => one.scheduledFor);
    expect(new Set(times).size, `seed ${seed}: a time came twice`).toBe(times.length);
  }
}

function ignoreCrash(error: unknown): void {
  if (!(error instanceof Crash)) throw error;
}
