import type { NewOccurrence, Schedule, ScheduledWork, Stores, TakeResult } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { Scene, StoresFactory } from './scene.ts';
import { scenes, T0 } from './scene.ts';

/** A valid schedule: every hour, due at `T0`. */
export function newSchedule(part: Partial<Schedule> = {}): Schedule {
  return {
    scheduleId: 'schedule',
    userId: 'ann',
    title: 'Morning report',
    prompt: 'Write the report.',
    type: 'cron',
    cron: '0 * * * *',
    runAt: null,
    timezone: 'UTC',
    contextMode: 'fresh_thread_per_run',
    threadId: null,
    assistantId: 'agent',
    context: { model_name: 'm' },
    status: 'enabled',
    nextRunAt: T0,
    lastRunAt: null,
    lastRunId: null,
    lastThreadId: null,
    lastError: null,
    runCount: 0,
    active: false,
    revision: 1,
    createdAt: T0,
    updatedAt: T0,
    ...part,
  };
}

/** What its runs are asked. */
export const WORK: ScheduledWork = {
  prompt: 'Write the report.',
  assistantId: 'agent',
  context: { a: 1 },
  reuses: false,
};

const HOUR = 3_600_000;
const LEASE = 60_000;

/** What every schedule store must do. */
export function scheduleStoreContract(name: string, factory: StoresFactory): void {
  describe(`schedule store: ${name}`, () => {
    const scene = scenes(factory);
    const create = (s: Scene, part: Partial<Schedule> = {}, limit = 100) =>
      s.a.schedules.create({ schedule: newSchedule(part), limit });
    const get = (s: Scene, scheduleId = 'schedule') => s.b.schedules.get({ scheduleId, userId: 'ann' });
    const must = async (s: Scene, scheduleId = 'schedule'): Promise<Schedule> => {
      const found = await get(s, scheduleId);
      if (found === null) throw new Error(`There is no schedule ${scheduleId}.`);
      return found;
    };
    const occurrence = (id: string, part: Partial<NewOccurrence> = {}): NewOccurrence => ({
      occurrenceId: id,
      threadId: `thread-${id}`,
      work: WORK,
      scheduledFor: T0,
      trigger: 'scheduled',
      ...part,
    });
    const take = (
      stores: Stores,
      of: Pick<Schedule, 'scheduleId' | 'revision'>,
      part: Partial<Parameters<Stores['schedules']['take']>[0]> = {},
    ): Promise<TakeResult> =>
      stores.schedules.take({
        scheduleId: of.scheduleId,
        revision: of.revision,
        nextRunAt: T0 + HOUR,
        occurrence: occurrence('o1'),
        owner: 'launcher',
        leaseMs: LEASE,
        maxOpen: 3,
        keep: 100,
        now: T0,
        ...part,
      });
    const taken = async (s: Scene, id: string, part: Parameters<typeof take>[2] = {}, scheduleId = 'schedule') => {
      const result = await take(s.a, await must(s, scheduleId), { occurrence: occurrence(id), ...part });
      if (result.outcome !== 'taken') throw new Error(`not taken: ${result.outcome}`);
      return result;
    };
    const launch = async (s: Scene, id: string) => {
      const { run, fence } = await s.running({ threadId: `thread-${id}`, userId: 'ann' });
      const told = await s.a.schedules.launched({
        occurrenceId: id,
        owner: 'launcher',
        runId: run.runId,
        threadId: run.threadId,
        now: T0 + 1,
      });
      return { run, fence, told };
    };
    const history = async (s: Scene, scheduleId = 'schedule') =>
      ((await s.b.schedules.occurrences({ scheduleId, userId: 'ann', limit: 200, offset: 0 })) ?? []).map(
        (one) => `${one.occurrenceId} ${one.status}`,
      );

    test(
      'keeps what it is given, for its user alone, and a repeat makes no second one',
      verifies('SCH-1'),
      async () => {
        const s = await scene();
        expect(await create(s)).toBe('created');
        expect(await create(s)).toBe('created');
        expect(await get(s)).toEqual(newSchedule());
        expect(await s.a.schedules.get({ scheduleId: 'schedule', userId: 'bob' })).toBeNull();
        expect(await create(s, { scheduleId: 'second', type: 'once', cron: null, runAt: T0 + 5 }, 2)).toBe('created');
        expect(await create(s, { scheduleId: 'third' }, 2)).toBe('full');
        expect(await create(s, { scheduleId: 'his', userId: 'bob' }, 2)).toBe('created');
        const list = await s.b.schedules.list({ userId: 'ann', threadId: null, limit: 10, offset: 0 });
        expect(list.map((one) => one.scheduleId)).toEqual(['second', 'schedule']);
        expect(await s.b.schedules.list({ userId: 'ann', threadId: null, limit: 1, offset: 1 })).toHaveLength(1);
        expect(await s.a.schedules.remove({ scheduleId: 'schedule', userId: 'bob' })).toBe(false);
        expect(await s.a.schedules.remove({ scheduleId: 'schedule', userId: 'ann' })).toBe(true);
        expect(await s.a.schedules.remove({ scheduleId: 'schedule', userId: 'ann' })).toBe(false);
        expect(await get(s)).toBeNull();
      },
    );

    test('an edit that saw an older one changes nothing', verifies('SCH-1'), async () => {
      const s = await scene();
      await create(s);
      const edit = { scheduleId: 'schedule', userId: 'ann', now: T0 + 1 };
      const first = await s.a.schedules.update({ ...edit, revision: 1, edit: { status: 'paused', title: 'A' } });
      expect(first).toMatchObject({ status: 'paused', title: 'A', revision: 2, prompt: 'Write the report.' });
      expect(await s.b.schedules.update({ ...edit, revision: 1, edit: { title: 'B' } })).toBeNull();
      expect(await s.b.schedules.update({ ...edit, userId: 'bob', revision: 2, edit: { title: 'B' } })).toBeNull();
      expect(await get(s)).toEqual(first);
    });

    test('what is due: enabled ones alone, the longest due first', verifies('SCH-2'), async () => {
      const s = await scene();
      expect(await s.a.schedules.nextDue()).toBeNull();
      await create(s, { scheduleId: 'later', nextRunAt: T0 + 50 });
      await create(s, { scheduleId: 'late', nextRunAt: T0 - 50 });
      await create(s, { scheduleId: 'paused', nextRunAt: T0 - 90, status: 'paused' });
      await create(s, { scheduleId: 'over', nextRunAt: null });
      expect(await s.a.schedules.nextDue()).toBe(T0 - 50);
      const due = (now: number, limit = 10) =>
        s.a.schedules.due({ now, limit }).then((list) => list.map((one) => one.scheduleId));
      expect(await due(T0 - 51)).toEqual([]);
      expect(await due(T0 + 50)).toEqual(['late', 'later']);
      expect(await due(T0 + 50, 1)).toEqual(['late']);
    });

    test('a time is taken once, however many want it', verifies('SCH-2', 'SCH-3'), async () => {
      const s = await scene();
      await create(s);
      const seen = await must(s);
      const results = await Promise.all(
        Array.from({ length: 6 }, (_, n) =>
          take(n % 2 === 0 ? s.a : s.b, seen, { occurrence: occurrence(`o${n}`), owner: `owner-${n}` }),
        ),
      );
      expect(results.map((result) => result.outcome).sort()).toEqual([...Array(5).fill('changed'), 'taken']);
      expect(await history(s)).toHaveLength(1);
      const after = await must(s);
      expect(after).toMatchObject({ nextRunAt: T0 + HOUR, runCount: 1, lastRunAt: T0, active: true, revision: 2 });
    });

    test(
      'while one is at work the next time is skipped and said, a trigger refused',
      verifies('SCH-2', 'API-13'),
      async () => {
        const s = await scene();
        await create(s);
        await taken(s, 'o1');
        const manual = occurrence('by-hand', { trigger: 'manual' });
        expect(await take(s.b, await must(s), { nextRunAt: undefined, occurrence: manual })).toEqual({
          outcome: 'overlap',
        });
        expect(await take(s.b, await must(s), { nextRunAt: T0 + 2 * HOUR, occurrence: occurrence('o2') })).toEqual({
          outcome: 'overlap',
        });
        expect(await history(s)).toEqual(['o2 skipped', 'o1 queued']);
        expect(await must(s)).toMatchObject({ nextRunAt: T0 + 2 * HOUR, runCount: 1, lastThreadId: 'thread-o1' });
      },
    );

    test('no more are open at once than may be, by hand or not', verifies('SCH-2'), async () => {
      const s = await scene();
      for (const id of ['s1', 's2', 's3']) await create(s, { scheduleId: id });
      await taken(s, 'o1', { maxOpen: 2 }, 's1');
      await taken(s, 'o2', { maxOpen: 2 }, 's2');
      const before = await must(s, 's3');
      for (const trigger of ['scheduled', 'manual'] as const)
        expect(await take(s.b, before, { maxOpen: 2, occurrence: occurrence('o3', { trigger }) })).toEqual({
          outcome: 'full',
        });
      // It stays due.
      expect(await get(s, 's3')).toEqual(before);
    });

    test(
      'of peers that take different ones at once, no more than the limit get one',
      verifies('SCH-2', 'SCH-3'),
      async () => {
        const s = await scene();
        for (let n = 0; n < 6; n += 1) await create(s, { scheduleId: `s${n}` });
        const results = await Promise.all(
          Array.from({ length: 6 }, (_, n) =>
            take(n % 2 === 0 ? s.a : s.b, { scheduleId: `s${n}`, revision: 1 }, { occurrence: occurrence(`o${n}`) }),
          ),
        );
        expect(results.filter((result) => result.outcome === 'taken')).toHaveLength(3);
        expect(results.filter((result) => result.outcome === 'full')).toHaveLength(3);
      },
    );

    test('a trigger leaves the next time as it is', verifies('SCH-1'), async () => {
      const s = await scene();
      await create(s, { nextRunAt: T0 + 77 });
      await taken(s, 'o1', { nextRunAt: undefined, occurrence: occurrence('o1', { trigger: 'manual' }) });
      expect(await must(s)).toMatchObject({ nextRunAt: T0 + 77, runCount: 1 });
    });

    test('whose launcher died is launched by another, whose token alone counts', verifies('SCH-2'), async () => {
      const s = await scene();
      await create(s);
      await taken(s, 'o1');
      const over = (owner: string, now: number) => s.b.schedules.takeOver({ owner, leaseMs: LEASE, limit: 5, now });
      expect(await over('peer', T0 + LEASE - 1)).toEqual([]);
      const [queued] = await over('peer', T0 + LEASE);
      expect(queued).toMatchObject({
        schedule: { prompt: 'Write the report.' },
        occurrence: { threadId: 'thread-o1' },
      });
      expect(await over('third', T0 + LEASE)).toEqual([]);
      const told = { occurrenceId: 'o1', runId: 'run', threadId: 'thread-o1', now: T0 + 9 };
      expect(await s.a.schedules.launched({ ...told, owner: 'launcher' })).toBe(false);
      const late = { occurrenceId: 'o1', error: 'late', broken: false, now: T0 };
      expect(await s.a.schedules.notLaunched({ ...late, owner: 'launcher' })).toBe(false);
      expect(await s.b.schedules.launched({ ...told, owner: 'peer' })).toBe(true);
      expect(await s.b.schedules.notLaunched({ ...late, owner: 'peer' })).toBe(false);
      const [one] =
        (await s.a.schedules.occurrences({ scheduleId: 'schedule', userId: 'ann', limit: 5, offset: 0 })) ?? [];
      expect(one).toMatchObject({ status: 'running', runId: 'run', startedAt: T0 + 9 });
      expect(await must(s)).toMatchObject({ lastRunId: 'run', lastThreadId: 'thread-o1' });
    });

    test('what could not be launched has failed; a broken schedule fails with it', verifies('SCH-2'), async () => {
      const s = await scene();
      await create(s);
      await taken(s, 'o1');
      const fail = { owner: 'launcher', error: 'no such model', now: T0 + 2 };
      expect(await s.a.schedules.notLaunched({ ...fail, occurrenceId: 'o1', broken: false })).toBe(true);
      expect(await must(s)).toMatchObject({ status: 'enabled', lastError: 'no such model', active: false });
      await taken(s, 'o2', { nextRunAt: T0 + 2 * HOUR });
      expect(await s.a.schedules.notLaunched({ ...fail, occurrenceId: 'o2', broken: true })).toBe(true);
      expect(await must(s)).toMatchObject({ status: 'failed', nextRunAt: null });
      expect(await s.a.schedules.due({ now: T0 + 9 * HOUR, limit: 5 })).toEqual([]);
      await create(s, { scheduleId: 'once', type: 'once', cron: null, runAt: T0 });
      await taken(s, 'o3', { nextRunAt: null }, 'once');
      await s.a.schedules.notLaunched({ ...fail, occurrenceId: 'o3', broken: false });
      expect(await must(s, 'once')).toMatchObject({ status: 'failed' });
    });

    test('the end of the run ends the occurrence, and one of type once', verifies('SCH-2', 'API-13'), async () => {
      const s = await scene();
      const ends = [
        ['success', 'success', 'completed', null],
        ['error', 'failed', 'failed', 'it broke'],
        ['interrupted', 'interrupted', 'cancelled', null],
      ] as const;
      for (const [index, [status, expected, end, error]] of ends.entries()) {
        const id = `once-${index}`;
        await create(s, { scheduleId: id, type: 'once', cron: null, runAt: T0 });
        await taken(s, `o${index}`, { nextRunAt: null }, id);
        const { fence } = await launch(s, `o${index}`);
        expect(await s.b.schedules.settle({ now: T0 + 5, limit: 10 })).toBe(0);
        await s.finalize(fence, status, { now: T0 + 4, ...(error === null ? {} : { error }) });
        expect(await s.b.schedules.settle({ now: T0 + 5, limit: 10 })).toBe(1);
        const [one] = (await s.a.schedules.occurrences({ scheduleId: id, userId: 'ann', limit: 5, offset: 0 })) ?? [];
        expect(one).toMatchObject({ status: expected, error, finishedAt: T0 + 4 });
        expect(await must(s, id)).toMatchObject({ status: end, lastError: error, active: false, nextRunAt: null });
      }
      expect(await s.b.schedules.settle({ now: T0 + 5, limit: 10 })).toBe(0);
    });

    test('a new time for one that is at work outlasts the end of that work', verifies('SCH-1'), async () => {
      const s = await scene();
      await create(s, { type: 'once', cron: null, runAt: T0 });
      await taken(s, 'o1', { nextRunAt: null });
      const { fence } = await launch(s, 'o1');
      const { revision } = await must(s);
      const edit = { runAt: T0 + HOUR, nextRunAt: T0 + HOUR };
      await s.a.schedules.update({ scheduleId: 'schedule', userId: 'ann', revision, edit, now: T0 + 2 });
      await s.finalize(fence, 'success');
      await s.a.schedules.settle({ now: T0 + 5, limit: 10 });
      expect(await must(s)).toMatchObject({ status: 'enabled', nextRunAt: T0 + HOUR });
    });

    test('a run that is gone was interrupted, and holds nothing up', verifies('SCH-2'), async () => {
      const s = await scene();
      await create(s);
      await taken(s, 'o1');
      const told = { occurrenceId: 'o1', owner: 'launcher', runId: 'gone', threadId: 'thread-o1', now: T0 };
      expect(await s.a.schedules.launched(told)).toBe(true);
      expect(await s.a.schedules.settle({ now: T0 + 5, limit: 10 })).toBe(1);
      expect(await history(s)).toEqual(['o1 interrupted']);
      expect(await must(s)).toMatchObject({ status: 'enabled', active: false });
    });

    test('lists those of a thread, and an unknown schedule has no history', async () => {
      const s = await scene();
      await create(s, { scheduleId: 'reuses', contextMode: 'reuse_thread', threadId: 'mine' });
      await create(s, { scheduleId: 'was-there' });
      await taken(s, 'o1', { occurrence: occurrence('o1', { threadId: 'mine' }) }, 'was-there');
      await create(s, { scheduleId: 'elsewhere' });
      const of = await s.a.schedules.list({ userId: 'ann', threadId: 'mine', limit: 10, offset: 0 });
      expect(of.map((one) => one.scheduleId)).toEqual(['was-there', 'reuses']);
      expect(await s.a.schedules.occurrences({ scheduleId: 'reuses', userId: 'bob', limit: 5, offset: 0 })).toBeNull();
    });

    test('the history is bounded; what is open stays', async () => {
      const s = await scene();
      await create(s);
      await taken(s, 'open');
      for (let n = 0; n < 9; n += 1)
        await take(s.a, await must(s), { occurrence: occurrence(`skipped-${n}`), nextRunAt: T0 + n, keep: 3 });
      expect(await history(s)).toEqual(['skipped-8 skipped', 'skipped-7 skipped', 'skipped-6 skipped', 'open queued']);
    });
  });
}
