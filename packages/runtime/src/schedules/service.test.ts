import type { Run, Schedule } from '@reindeer/protocol';
import { flush, TEST_EPOCH, VirtualClock, verifies } from '@reindeer/testkit';
import { afterEach, describe, expect, test } from 'vitest';
import { USER, type World, type WorldOptions, world } from '../testing/world.ts';
import { LocalScheduleService, type ScheduleFields } from './service.ts';
import type { ScheduleSettings } from './settings.ts';

const HOUR = 3_600_000;
const started: LocalScheduleService[] = [];

interface Scene extends World {
  readonly schedules: LocalScheduleService;
}

function scene(options: WorldOptions & { schedules?: Partial<ScheduleSettings> } = {}): Scene {
  const made = world(options);
  const schedules = new LocalScheduleService({
    store: made.stores.schedules,
    runs: made.runtime.runs,
    threads: made.runtime.threads,
    surroundings: made.surroundings,
    settings: options.schedules ?? {},
  });
  started.push(schedules);
  return { ...made, schedules };
}

const fields = (part: Partial<ScheduleFields> = {}): ScheduleFields => ({
  title: 'Report',
  prompt: 'Write the report.',
  cron: '0 * * * *',
  timezone: 'UTC',
  contextMode: 'fresh_thread_per_run',
  threadId: null,
  assistantId: 'scripted',
  context: { model_name: 'm' },
  ...part,
});

const of = ({ scheduleId }: Schedule) => ({ scheduleId, userId: USER });
const history = async (s: Scene, schedule: Schedule) =>
  ((await s.stores.schedules.occurrences({ ...of(schedule), limit: 100, offset: 0 })) ?? []).map((one) => one.status);
async function runOf(s: Scene, schedule: Schedule): Promise<Run> {
  const runId = (await s.schedules.get(of(schedule)))?.lastRunId ?? '';
  const run = await s.stores.runs.get(runId);
  if (run === null) throw new Error('It has no run.');
  return run;
}
/** Waits for the end of its run, and lets the service see it. */
async function finished(s: Scene, schedule: Schedule): Promise<Run> {
  const run = await s.ended(await runOf(s, schedule));
  await s.stores.schedules.settle({ now: s.surroundings.clock.now(), limit: 10 });
  return run;
}

afterEach(async () => {
  for (const schedules of started.splice(0)) void schedules.stop(0);
  await flush();
});

describe('what is due', () => {
  test('becomes one run on a thread of its own, for nobody to answer', verifies('SCH-2', 'API-13'), async () => {
    const s = scene();
    await s.runtime.start();
    const schedule = await s.schedules.create(USER, fields());
    expect(schedule.nextRunAt).toBe(TEST_EPOCH + HOUR);
    s.schedules.start();
    await s.surroundings.clock.advance(HOUR - 1_000);
    expect(await history(s, schedule)).toEqual([]);
    await s.surroundings.clock.advance(1_100);
    const run = await finished(s, schedule);
    expect(run).toMatchObject({
      status: 'success',
      userId: USER,
      metadata: { source: 'schedule', schedule_id: schedule.scheduleId, trigger: 'scheduled' },
      request: { context: { model_name: 'm', non_interactive: true, scheduled: true } },
    });
    expect(await history(s, schedule)).toEqual(['success']);
    expect(await s.schedules.get(of(schedule))).toMatchObject({ nextRunAt: TEST_EPOCH + 2 * HOUR, runCount: 1 });
    await s.surroundings.clock.advance(HOUR);
    const second = await finished(s, schedule);
    expect(second.runId).not.toBe(run.runId);
    expect(second.threadId).not.toBe(run.threadId);
  });

  test('times that passed while nothing ran are made up for once', verifies('SCH-2'), async () => {
    const s = scene();
    await s.runtime.start();
    const schedule = await s.schedules.create(USER, fields());
    s.surroundings.clock.jump(5 * HOUR + 60_000);
    await s.schedules.pass();
    await finished(s, schedule);
    await s.schedules.pass();
    expect(await history(s, schedule)).toEqual(['success']);
    expect(await s.schedules.get(of(schedule))).toMatchObject({ nextRunAt: TEST_EPOCH + 6 * HOUR });
  });

  test('a clock that is set back starts nothing twice', verifies('SCH-2'), async () => {
    const s = scene();
    await s.runtime.start();
    const schedule = await s.schedules.create(USER, fields());
    s.surroundings.clock.jump(HOUR);
    await s.schedules.pass();
    await finished(s, schedule);
    s.surroundings.clock.jump(-2 * HOUR);
    for (let n = 0; n < 3; n += 1) {
      await s.schedules.pass();
      s.surroundings.clock.jump(HOUR);
    }
    expect(await history(s, schedule)).toEqual(['success']);
  });

  test('one that runs once is over with its run; a new time enables it again', verifies('SCH-1', 'SCH-2'), async () => {
    const s = scene();
    await s.runtime.start();
    const once = fields({ cron: undefined, runAt: '2030-01-01T10:00', timezone: 'Asia/Tokyo' });
    const schedule = await s.schedules.create(USER, once);
    expect(schedule.nextRunAt).toBe(TEST_EPOCH + HOUR);
    s.surroundings.clock.jump(HOUR);
    await s.schedules.pass();
    await finished(s, schedule);
    expect(await s.schedules.get(of(schedule))).toMatchObject({ status: 'completed', nextRunAt: null });
    await expect(s.schedules.resume(of(schedule))).rejects.toThrow(/over \(completed\)/);
    const again = await s.schedules.edit(of(schedule), { runAt: '2030-01-01T12:00:00Z' });
    expect(again).toMatchObject({ status: 'enabled', nextRunAt: TEST_EPOCH + 12 * HOUR });
  });

  test('on a thread of the user it waits its turn there', verifies('SCH-2'), async () => {
    let release = (): void => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let calls = 0;
    const s = scene({
      script: {
        model: async () => {
          calls += 1;
          if (calls === 1) await held;
          return { text: 'done' };
        },
      },
    });
    await s.runtime.start();
    const busy = await s.admitted({ threadId: 'mine' });
    const schedule = await s.schedules.create(USER, fields({ contextMode: 'reuse_thread', threadId: 'mine' }));
    s.surroundings.clock.jump(HOUR);
    await s.schedules.pass();
    expect(await runOf(s, schedule)).toMatchObject({ threadId: 'mine', queued: true });
    release();
    await s.ended(busy);
    expect((await finished(s, schedule)).status).toBe('success');
  });

  test('whose thread is gone it has failed, and is not tried again', verifies('SCH-2'), async () => {
    const s = scene();
    await s.runtime.start();
    await s.runtime.threads.create({ threadId: 'mine', userId: USER, metadata: {}, ifExists: 'raise' });
    const schedule = await s.schedules.create(USER, fields({ contextMode: 'reuse_thread', threadId: 'mine' }));
    await s.runtime.threads.delete({ threadId: 'mine', userId: USER });
    s.surroundings.clock.jump(HOUR);
    await s.schedules.pass();
    s.surroundings.clock.jump(HOUR);
    await s.schedules.pass();
    expect(await history(s, schedule)).toEqual(['failed']);
    const after = await s.schedules.get(of(schedule));
    expect(after).toMatchObject({ status: 'failed', nextRunAt: null, lastError: expect.stringContaining('gone') });
  });
});

describe('a crash', () => {
  for (const point of ['schedule.before-launch', 'schedule.launched'])
    test(`at ${point} makes no second run and loses none`, verifies('SCH-2'), async () => {
      const clock = new VirtualClock();
      const dead = scene({ clock });
      await dead.runtime.start();
      const schedule = await dead.schedules.create(USER, fields());
      clock.jump(HOUR);
      const gate = dead.surroundings.probe.hold(point);
      void dead.schedules.pass().catch(() => undefined);
      await gate.reached;
      // It hangs there for good; its peer shares the stores.
      const peer = scene({ clock, opened: dead.stores, seed: 2 });
      await peer.schedules.pass();
      expect(await history(peer, schedule)).toEqual(['queued']);
      // What is asked is what was asked then.
      await peer.schedules.edit(of(schedule), { prompt: 'Something else.' });
      clock.jump(120_000);
      await peer.schedules.pass();
      // The run that was admitted before is at work where it was.
      const run = await finished(point === 'schedule.launched' ? dead : peer, schedule);
      expect(run.status).toBe('success');
      gate.release();
      await flush();
      expect(await history(peer, schedule)).toEqual(['success']);
      const runs = await peer.stores.runs.list({
        threadId: run.threadId,
        userId: USER,
        status: null,
        limit: 9,
        offset: 0,
      });
      expect(runs).toHaveLength(1);
      expect(JSON.stringify(run.request.input)).toContain('Write the report.');
    });
});

describe('by hand', () => {
  test(
    'runs now and leaves its times; refused while it is at work, or too many are',
    verifies('SCH-1', 'API-13'),
    async () => {
      let release = (): void => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      const s = scene({ script: { model: () => held.then(() => ({ text: 'done' })) }, schedules: { maxRuns: 1 } });
      await s.runtime.start();
      const schedule = await s.schedules.create(USER, fields());
      const other = await s.schedules.create(USER, fields());
      const triggered = await s.schedules.trigger(of(schedule));
      expect(triggered?.run?.metadata).toMatchObject({ trigger: 'manual' });
      expect(triggered?.schedule).toMatchObject({ active: true, nextRunAt: TEST_EPOCH + HOUR });
      await expect(s.schedules.trigger(of(schedule))).rejects.toMatchObject({ code: 'conflict' });
      await expect(s.schedules.trigger(of(other))).rejects.toMatchObject({ code: 'over_capacity' });
      expect(await history(s, other)).toEqual([]);
      // Paused while it works: the work goes on, and no other time comes.
      expect(await s.schedules.pause(of(schedule))).toMatchObject({ status: 'paused', active: true });
      release();
      await finished(s, schedule);
      s.surroundings.clock.jump(3 * HOUR);
      await s.schedules.pass();
      expect(await history(s, schedule)).toEqual(['success']);
      // What passed meanwhile is not made up for.
      expect(await s.schedules.resume(of(schedule))).toMatchObject({
        status: 'enabled',
        nextRunAt: TEST_EPOCH + 4 * HOUR,
      });
      expect(await s.schedules.trigger({ scheduleId: 'none', userId: USER })).toBeNull();
      expect(await s.schedules.trigger({ ...of(schedule), userId: 'bob' })).toBeNull();
    },
  );
});

test('bad times, threads and zones are refused with the field', verifies('SCH-1'), async () => {
  const s = scene();
  const refused = async (part: Partial<ScheduleFields>, field: string) => {
    await expect(s.schedules.create(USER, fields(part)), JSON.stringify(part)).rejects.toMatchObject({
      code: 'validation_failed',
      detail: { field },
    });
  };
  await refused({ runAt: '2030-01-01T00:00:59' }, 'schedule_spec.run_at');
  await refused({ cron: '0 9 * *' }, 'schedule_spec.cron');
  await refused({ timezone: 'Nowhere' }, 'timezone');
  await refused({ contextMode: 'reuse_thread' }, 'thread_id');
  await refused({ contextMode: 'reuse_thread', threadId: 'none' }, 'thread_id');
  await refused({ threadId: 'some' }, 'thread_id');
  const schedule = await s.schedules.create(USER, fields());
  await expect(s.schedules.edit(of(schedule), { runAt: '2031-01-01T00:00' })).rejects.toThrow(/repeats/);
  expect(await s.schedules.edit(of(schedule), { timezone: 'Asia/Kolkata' })).toMatchObject({
    nextRunAt: TEST_EPOCH + HOUR / 2,
  });
  await s.schedules.stop(0);
  await expect(s.schedules.create(USER, fields())).rejects.toMatchObject({ code: 'shutting_down' });
});
