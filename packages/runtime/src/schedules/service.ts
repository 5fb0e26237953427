import {
  type JsonObject,
  newId,
  type Occurrence,
  type QueuedOccurrence,
  ReindeerError,
  type Run,
  type RunService,
  type Schedule,
  type ScheduleContext,
  type ScheduleEdit,
  type ScheduleStore,
  type Surroundings,
  type ThreadService,
} from '@reindeer/protocol';
import { Bell, settledWithin } from '../common/waiting.ts';
import { checkCron, checkTimezone, invalid, nextOfCron, readTime } from './calendar.ts';
import { type Launch, launch } from './launcher.ts';
import { DEFAULT_SCHEDULE_SETTINGS, type ScheduleSettings } from './settings.ts';

export interface ScheduleParts {
  readonly store: ScheduleStore;
  readonly runs: Pick<RunService, 'create'>;
  readonly threads: Pick<ThreadService, 'get'>;
  readonly surroundings: Surroundings;
  readonly settings?: Partial<ScheduleSettings>;
}

/** As a user gives it; what an edit leaves out stays. */
export interface ScheduleFields {
  readonly title: string;
  readonly prompt: string;
  /** `once`: a date and time, with an offset or as the clock in `timezone` shows it. */
  readonly runAt?: string | undefined;
  /** `cron`: five fields. */
  readonly cron?: string | undefined;
  readonly timezone: string;
  readonly contextMode: ScheduleContext;
  readonly threadId: string | null;
  readonly assistantId: string;
  readonly context: JsonObject;
  /** Made without starting anything until it is resumed. Only when it is made. */
  readonly paused?: boolean;
}

type Address = { readonly scheduleId: string; readonly userId: string };

/** Schedules that one look takes. What is left is still due at the next. */
const MOST_AT_ONCE = 50;
/** A change that others keep overtaking is given up after so many tries. */
const TRIES = 5;

/**
 * Schedules in one process: what the gateway calls, and the loop that starts what is due. Any number of processes may look at the same
 * store; which of them takes a time is decided there.
 *
 * A time that passed while nothing ran here is made up for once, however many were missed. States: made → started → stopped.
 */
export class LocalScheduleService {
  readonly settings: ScheduleSettings;
  readonly #parts: ScheduleParts & { readonly settings: ScheduleSettings };
  readonly #stopping = new AbortController();
  readonly #bell = new Bell();
  /** Launches under way: the stop waits for them. */
  readonly #launches = new Set<Promise<unknown>>();
  #loop: Promise<void> | null = null;

  constructor(parts: ScheduleParts) {
    this.settings = { ...DEFAULT_SCHEDULE_SETTINGS, ...parts.settings };
    this.#parts = { ...parts, settings: this.settings };
  }

  /** Is anything started here? */
  get working(): boolean {
    return this.settings.enabled && !this.#stopping.signal.aborted;
  }

  /** Idempotent. */
  start(): void {
    if (this.settings.enabled) this.#loop ??= this.#run();
  }

  /** Nothing is taken any more; launches under way are waited for. Idempotent, never rejects. */
  async stop(timeoutMs: number): Promise<void> {
    this.#stopping.abort();
    this.#bell.ring();
    const { clock } = this.#parts.surroundings;
    await settledWithin(clock, Promise.allSettled([this.#loop, ...this.#launches]), timeoutMs);
  }

  /** Something may be due, or a run has ended. */
  wake(): void {
    this.#bell.ring();
  }

  async create(userId: string, fields: ScheduleFields): Promise<Schedule> {
    this.#mustWork();
    const { store, surroundings, settings } = this.#parts;
    const now = surroundings.clock.now();
    const when = this.#when(fields, now);
    const schedule: Schedule = {
      scheduleId: newId(surroundings.random),
      userId,
      title: fields.title,
      prompt: fields.prompt,
      ...when,
      contextMode: fields.contextMode,
      threadId: await this.#threadOf(userId, fields.contextMode, fields.threadId),
      assistantId: fields.assistantId,
      context: fields.context,
      status: fields.paused === true ? 'paused' : 'enabled',
      lastRunAt: null,
      lastRunId: null,
      lastThreadId: null,
      lastError: null,
      runCount: 0,
      active: false,
      revision: 1,
      createdAt: now,
      updatedAt: now,
    };
    if ((await store.create({ schedule, limit: settings.maxPerUser })) === 'full')
      throw new ReindeerError(
        'queue_full',
        `You have ${settings.maxPerUser} scheduled tasks, as many as may be. Delete one first.`,
      );
    this.#bell.ring();
    return schedule;
  }

  get(address: Address): Promise<Schedule | null> {
    return this.#parts.store.get(address);
  }

  list(input: Parameters<ScheduleStore['list']>[0]): Promise<readonly Schedule[]> {
    return this.#parts.store.list(input);
  }

  occurrences(input: Parameters<ScheduleStore['occurrences']>[0]): Promise<readonly Occurrence[] | null> {
    return this.#parts.store.occurrences(input);
  }

  /** Runs that are at work go on. */
  remove(address: Address): Promise<boolean> {
    return this.#parts.store.remove(address);
  }

  /** A new time enables one of type `once` again that was over. A run at work goes on as it was asked. null = there is none. */
  edit(address: Address, fields: Partial<ScheduleFields>): Promise<Schedule | null> {
    return this.#change(address, async (before, now) => {
      if (fields.runAt !== undefined && before.type !== 'once')
        throw invalid('schedule_spec.run_at', 'This one repeats; give schedule_spec.cron, or make a new one.');
      if (fields.cron !== undefined && before.type !== 'cron')
        throw invalid('schedule_spec.cron', 'This one runs once; give schedule_spec.run_at, or make a new one.');
      const { title, prompt, assistantId, context } = { ...before, ...defined(fields) };
      const contextMode = fields.contextMode ?? before.contextMode;
      const asked = fields.threadId === undefined ? before.threadId : fields.threadId;
      const threadId =
        contextMode === before.contextMode && asked === before.threadId
          ? asked
          : await this.#threadOf(address.userId, contextMode, asked);
      const base = { title, prompt, assistantId, context, contextMode, threadId };
      const timezone = fields.timezone ?? before.timezone;
      if (fields.runAt === undefined && fields.cron === undefined && timezone === before.timezone) return base;
      if (before.type === 'once' && fields.runAt === undefined) return { ...base, timezone: checkTimezone(timezone) };
      const when = this.#when({ runAt: fields.runAt, cron: fields.cron ?? before.cron ?? undefined, timezone }, now);
      const status = before.status === 'paused' ? 'paused' : 'enabled';
      return {
        ...base,
        cron: when.cron,
        runAt: when.runAt,
        timezone,
        nextRunAt: when.nextRunAt,
        status,
        lastError: null,
      };
    });
  }

  /** Nothing more is started; what is at work ends as it would. */
  pause(address: Address): Promise<Schedule | null> {
    return this.#change(address, async ({ status }) => {
      if (status === 'paused') return null;
      if (status !== 'enabled') throw over(status);
      return { status: 'paused' };
    });
  }

  /** Times that passed meanwhile are not made up for. */
  resume(address: Address): Promise<Schedule | null> {
    return this.#change(address, async (before, now) => {
      const { type, status, cron, timezone, nextRunAt } = before;
      if (status === 'enabled') return null;
      // A repeated one that failed, because its thread was deleted, goes on with another thread.
      if (type === 'once' && status !== 'paused') throw over(status);
      if (type === 'cron')
        return { status: 'enabled', nextRunAt: nextOfCron(cron ?? '', timezone, now), lastError: null };
      if (nextRunAt === null || nextRunAt <= now)
        throw new ReindeerError('conflict', 'Its time has passed. Give it a new schedule_spec.run_at.');
      return { status: 'enabled' };
    });
  }

  /** Runs it now, beside its times. null = there is none. Throws `conflict` while it is at work, `over_capacity` when too many are. */
  async trigger(address: Address): Promise<{ readonly schedule: Schedule; readonly run: Run | null } | null> {
    this.#mustWork();
    const { store, surroundings } = this.#parts;
    for (let tries = 0; tries < TRIES; tries += 1) {
      const schedule = await store.get(address);
      if (schedule === null) return null;
      const owner = surroundings.random.uuid();
      const taken = await this.#take(schedule, 'manual', undefined, owner);
      if (taken.outcome === 'changed') continue;
      if (taken.outcome === 'overlap') throw new ReindeerError('conflict', 'It is at work. Wait for its end.');
      if (taken.outcome === 'full')
        throw new ReindeerError('over_capacity', 'As many scheduled tasks are at work as may be. Try again later.', {
          retryable: true,
        });
      const made = await this.#launch(taken, owner);
      if (made.outcome === 'failed') throw made.error;
      return {
        schedule: (await store.get(address)) ?? taken.schedule,
        run: made.outcome === 'launched' ? made.run : null,
      };
    }
    throw overtaken();
  }

  /** One look: ends what has ended, finishes launches that others began, starts what is due. Answers whether more is due. */
  async pass(): Promise<boolean> {
    const { store, surroundings, settings } = this.#parts;
    const { clock, random } = surroundings;
    await store.settle({ now: clock.now(), limit: MOST_AT_ONCE });
    const owner = random.uuid();
    const { leaseMs } = settings;
    for (const queued of await store.takeOver({ owner, leaseMs, limit: MOST_AT_ONCE, now: clock.now() }))
      await this.#launch(queued, owner);
    for (const schedule of await store.due({ now: clock.now(), limit: MOST_AT_ONCE })) {
      if (this.#stopping.signal.aborted) return false;
      const { type, cron, timezone } = schedule;
      const now = clock.now();
      const next = type === 'cron' ? nextOfCron(cron ?? '', timezone, now) : null;
      const taken = await this.#take(schedule, 'scheduled', next, owner);
      // What is due stays due, and is taken when one has ended.
      if (taken.outcome === 'full') return true;
      if (taken.outcome === 'taken') await this.#launch(taken, owner);
    }
    return false;
  }

  #take(
    schedule: Schedule,
    trigger: Occurrence['trigger'],
    nextRunAt: number | null | undefined,
    owner: string,
  ): ReturnType<ScheduleStore['take']> {
    const { store, surroundings, settings } = this.#parts;
    const { random, clock } = surroundings;
    const { scheduleId, revision, prompt, assistantId, context, contextMode, threadId } = schedule;
    const now = clock.now();
    const reuses = contextMode === 'reuse_thread';
    return store.take({
      scheduleId,
      revision,
      nextRunAt,
      occurrence: {
        occurrenceId: newId(random),
        threadId: (reuses ? threadId : null) ?? newId(random),
        work: { prompt, assistantId, context, reuses },
        scheduledFor: trigger === 'manual' ? now : (schedule.nextRunAt ?? now),
        trigger,
      },
      owner,
      leaseMs: settings.leaseMs,
      maxOpen: settings.maxRuns,
      keep: settings.keep,
      now,
    });
  }

  async #launch(queued: QueuedOccurrence, owner: string): Promise<Launch> {
    const { surroundings } = this.#parts;
    const launching = launch(this.#parts, queued, owner);
    this.#launches.add(launching);
    try {
      const answer = await launching;
      if (answer.outcome !== 'launched')
        surroundings.logger.warn('A scheduled task could not be started', {
          scheduleId: queued.schedule.scheduleId,
          again: answer.outcome === 'later',
          error: answer.error.message,
        });
      return answer;
    } finally {
      this.#launches.delete(launching);
    }
  }

  /** Reads, works out a change, and writes it if nothing came in between. null from `change` = it is so already. */
  async #change(
    address: Address,
    change: (before: Schedule, now: number) => Promise<ScheduleEdit | null>,
  ): Promise<Schedule | null> {
    this.#mustWork();
    const { store, surroundings } = this.#parts;
    for (let tries = 0; tries < TRIES; tries += 1) {
      const before = await store.get(address);
      if (before === null) return null;
      const now = surroundings.clock.now();
      const edit = await change(before, now);
      if (edit === null) return before;
      const after = await store.update({ ...address, revision: before.revision, edit, now });
      if (after === null) continue;
      this.#bell.ring();
      return after;
    }
    throw overtaken();
  }

  #when(
    fields: Pick<ScheduleFields, 'runAt' | 'cron' | 'timezone'>,
    now: number,
  ): Pick<Schedule, 'type' | 'cron' | 'runAt' | 'timezone' | 'nextRunAt'> {
    const timezone = checkTimezone(fields.timezone);
    if (fields.runAt !== undefined) {
      const runAt = readTime(fields.runAt, timezone);
      const { minDelayMs } = this.settings;
      if (runAt < now + minDelayMs)
        throw invalid(
          'schedule_spec.run_at',
          `${new Date(runAt).toISOString()} is too soon or past. Give a time that is at least ${Math.ceil(minDelayMs / 1000)} seconds ahead.`,
        );
      return { type: 'once', cron: null, runAt, timezone, nextRunAt: runAt };
    }
    const cron = checkCron(fields.cron ?? '', timezone, now);
    return { type: 'cron', cron, runAt: null, timezone, nextRunAt: nextOfCron(cron, timezone, now) };
  }

  async #threadOf(userId: string, mode: ScheduleContext, threadId: string | null): Promise<string | null> {
    if (mode === 'fresh_thread_per_run') {
      if (threadId !== null) throw invalid('thread_id', 'A thread is named with context_mode reuse_thread only.');
      return null;
    }
    if (threadId === null) throw invalid('thread_id', 'With context_mode reuse_thread, name the thread.');
    if ((await this.#parts.threads.get({ threadId, userId })) === null)
      throw invalid('thread_id', `There is no thread ${threadId}.`);
    return threadId;
  }

  #mustWork(): void {
    if (this.working) return;
    throw new ReindeerError(
      'shutting_down',
      'Nothing here starts scheduled tasks: scheduler.enabled is false, or the server is stopping.',
      { retryable: true },
    );
  }

  async #run(): Promise<void> {
    const { surroundings, settings, store } = this.#parts;
    const { clock, logger } = surroundings;
    while (!this.#stopping.signal.aborted) {
      const woken = this.#bell.next();
      let wait = settings.pollMs;
      try {
        const full = await this.pass();
        const next = await store.nextDue();
        if (next !== null && !full) wait = Math.min(wait, Math.max(next - clock.now(), 0));
      } catch (error) {
        logger.warn('Looking for scheduled tasks failed; the next look tries again', { error: String(error) });
      }
      if (this.#stopping.signal.aborted) return;
      await settledWithin(clock, woken, wait);
      // However often it is woken.
      if (!this.#stopping.signal.aborted) await clock.sleep(50);
    }
  }
}

const over = (status: string) =>
  new ReindeerError('conflict', `It is over (${status}). Give it a new schedule_spec.run_at to enable it again.`);
const overtaken = () =>
  new ReindeerError('conflict', 'It is being changed by others at this moment. Try again.', { retryable: true });

const defined = <T extends object>(fields: T): Partial<T> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
