import { z } from '@hono/zod-openapi';
import { ROLE_KEY } from '@reindeer/agent';
import {
  type JsonObject,
  type Occurrence,
  ReindeerError,
  type Schedule,
  type ScheduleContext,
  type ThreadService,
} from '@reindeer/protocol';
import type { LocalScheduleService, ScheduleFields } from '@reindeer/runtime';
import { didYouMean } from '../nearest.ts';
import { notFound } from './errors.ts';
import { wholeNumber } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { idSchema, type RunCaller, threadParams } from './run-request.ts';

export interface ScheduleRouteParts {
  readonly schedules: LocalScheduleService;
  readonly threads: Pick<ThreadService, 'get'>;
  /** Ids of the graphs that a client may run; the first one is the default. */
  readonly assistants: readonly string[];
  /** Run options as a client may give them; throws what names the field. */
  checkContext(context: JsonObject, caller: RunCaller): JsonObject;
}

const tag = 'Scheduled tasks';
const PATH = '/scheduled-tasks';
const params = z.object({ task_id: idSchema });
const title = z.string().trim().min(1).max(200);
const prompt = z.string().trim().min(1).max(100_000);
const timezone = z.string().max(100);
const mode = z.enum(['fresh_thread_per_run', 'reuse_thread']);
const once = z.strictObject({ run_at: z.string().max(100) });
const cron = z.strictObject({ cron: z.string().max(200) });
const context = z.record(z.string(), z.unknown());

const newTask = z.strictObject({
  title,
  prompt,
  schedule_type: z.enum(['once', 'cron']),
  schedule_spec: z.union([once, cron], { error: 'Give {"run_at": "…"} or {"cron": "…"}.' }),
  timezone: timezone.default('UTC'),
  context_mode: mode.default('fresh_thread_per_run'),
  thread_id: idSchema.nullish(),
  assistant_id: z.string().max(64).nullish(),
  context: context.nullish(),
});
const editTask = z.strictObject({
  title: title.optional(),
  prompt: prompt.optional(),
  schedule_spec: z.union([once, cron], { error: 'Give {"run_at": "…"} or {"cron": "…"}.' }).optional(),
  timezone: timezone.optional(),
  context_mode: mode.optional(),
  thread_id: idSchema.nullish(),
  assistant_id: z.string().max(64).optional(),
  context: context.optional(),
});

/** `/api/scheduled-tasks`: what a user wants done at a time, again and again, or when asked. */
export function scheduleRoutes(api: Api, parts: ScheduleRouteParts): void {
  const { schedules } = parts;
  const addressOf = (c: RequestContext, scheduleId: string) => ({ scheduleId, userId: c.get('userId') });
  const found = (schedule: Schedule | null, taskId: string): Schedule => {
    if (schedule === null) throw notFound('scheduled task', taskId);
    return schedule;
  };
  const answers = { 200: 'The task.', 404: 'No such task.' };

  route(
    api,
    {
      method: 'post',
      path: PATH,
      tag,
      summary: 'Schedule a task: once at a time, or by five cron fields, read in `timezone`.',
      body: newTask,
      answers: {
        201: 'The task was scheduled.',
        422: 'A bad time, zone or thread; nothing was stored.',
        429: 'As many tasks as one user may have.',
        503: 'Nothing here starts scheduled tasks.',
      },
    },
    async ({ c, body }) => {
      const spec = body.schedule_spec;
      if (`${'cron' in spec}` !== `${body.schedule_type === 'cron'}`)
        throw new ReindeerError(
          'validation_failed',
          `schedule_spec: schedule_type ${body.schedule_type} needs {"${body.schedule_type === 'cron' ? 'cron' : 'run_at'}": "…"}.`,
          { detail: { field: 'schedule_spec' } },
        );
      const schedule = await schedules.create(c.get('userId'), {
        title: body.title,
        prompt: body.prompt,
        ...timeOf(spec),
        timezone: body.timezone,
        contextMode: body.context_mode,
        threadId: body.thread_id ?? null,
        assistantId: assistantOf(parts, body.assistant_id),
        context: runContextOf(parts, c, (body.context ?? {}) as JsonObject),
      });
      return c.json(taskView(schedule), 201);
    },
  );

  const page = z.object({ limit: wholeNumber(1, 200, 100), offset: wholeNumber(0, 1_000_000, 0) });
  route(
    api,
    {
      method: 'get',
      path: PATH,
      tag,
      summary: 'The tasks of the user, newest first.',
      query: page,
      answers: { 200: 'The tasks.' },
    },
    async ({ c, query }) =>
      c.json((await schedules.list({ userId: c.get('userId'), threadId: null, ...query })).map(taskView)),
  );
  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/scheduled-tasks',
      tag,
      summary: 'The tasks that use a thread, or whose newest run was on it.',
      params: threadParams,
      query: page,
      answers: { 200: 'The tasks.', 404: 'No such thread.' },
    },
    async ({ c, params: { thread_id: threadId }, query }) => {
      const userId = c.get('userId');
      if ((await parts.threads.get({ threadId, userId })) === null) throw notFound('thread', threadId);
      return c.json((await schedules.list({ userId, threadId, ...query })).map(taskView));
    },
  );
  route(
    api,
    { method: 'get', path: `${PATH}/:task_id`, tag, summary: 'A task.', params, answers },
    async ({ c, params: { task_id: taskId } }) =>
      c.json(taskView(found(await schedules.get(addressOf(c, taskId)), taskId))),
  );
  route(
    api,
    {
      method: 'patch',
      path: `${PATH}/:task_id`,
      tag,
      summary: 'Change a task; a run at work goes on as it was asked. A new time enables one that was over.',
      params,
      body: editTask,
      answers: { ...answers, 422: 'A bad value; nothing was changed.' },
    },
    async ({ c, params: { task_id: taskId }, body }) => {
      const edited = await schedules.edit(
        addressOf(c, taskId),
        present({
          title: body.title,
          prompt: body.prompt,
          ...(body.schedule_spec === undefined ? {} : timeOf(body.schedule_spec)),
          timezone: body.timezone,
          contextMode: body.context_mode as ScheduleContext | undefined,
          // Going over to a thread of its own each time, it has none any more.
          threadId: body.context_mode === 'fresh_thread_per_run' ? (body.thread_id ?? null) : body.thread_id,
          assistantId: body.assistant_id === undefined ? undefined : assistantOf(parts, body.assistant_id),
          context: body.context === undefined ? undefined : runContextOf(parts, c, body.context as JsonObject),
        }),
      );
      return c.json(taskView(found(edited, taskId)));
    },
  );
  route(
    api,
    {
      method: 'delete',
      path: `${PATH}/:task_id`,
      tag,
      summary: 'Delete a task and its history. Its runs and threads stay.',
      params,
      answers: { 204: 'Deleted.', 404: 'No such task.' },
    },
    async ({ c, params: { task_id: taskId } }) => {
      if (!(await schedules.remove(addressOf(c, taskId)))) throw notFound('scheduled task', taskId);
      return c.body(null, 204);
    },
  );
  for (const action of ['pause', 'resume'] as const)
    route(
      api,
      {
        method: 'post',
        path: `${PATH}/:task_id/${action}`,
        tag,
        summary:
          action === 'pause'
            ? 'Start nothing further; what is at work ends as it would.'
            : 'Go on. Times that passed meanwhile are not made up for.',
        params,
        answers: { ...answers, 409: 'It is over, or its time has passed.' },
      },
      async ({ c, params: { task_id: taskId } }) =>
        c.json(taskView(found(await schedules[action](addressOf(c, taskId)), taskId))),
    );
  route(
    api,
    {
      method: 'post',
      path: `${PATH}/:task_id/trigger`,
      tag,
      summary: 'Run it now, beside its times.',
      params,
      answers: {
        200: 'It runs.',
        202: 'It will run as soon as it can.',
        404: 'No such task.',
        409: 'It is at work.',
        503: 'As many scheduled tasks are at work as may be.',
      },
    },
    async ({ c, params: { task_id: taskId } }) => {
      const triggered = await schedules.trigger(addressOf(c, taskId));
      if (triggered === null) throw notFound('scheduled task', taskId);
      const { schedule, run } = triggered;
      const ids = { run_id: run?.runId ?? null, thread_id: run?.threadId ?? schedule.lastThreadId };
      return c.json({ ...taskView(schedule), ...ids }, run === null ? 202 : 200);
    },
  );
  route(
    api,
    {
      method: 'get',
      path: `${PATH}/:task_id/runs`,
      tag,
      summary: 'What became of its times, newest first.',
      params,
      query: page,
      answers: { 200: 'The runs.', 404: 'No such task.' },
    },
    async ({ c, params: { task_id: taskId }, query }) => {
      const list = await schedules.occurrences({ ...addressOf(c, taskId), ...query });
      if (list === null) throw notFound('scheduled task', taskId);
      return c.json(list.map(runView));
    },
  );
}

export function assistantOf({ assistants }: ScheduleRouteParts, given: string | null | undefined): string {
  const [first = ''] = assistants;
  const assistant = given ?? first;
  if (assistants.includes(assistant)) return assistant;
  throw new ReindeerError(
    'validation_failed',
    `assistant_id: there is no assistant "${assistant.slice(0, 64)}".${didYouMean(assistant, assistants)} There are: ${assistants.join(', ')}.`,
    { detail: { field: 'assistant_id' } },
  );
}

/** With the role of whoever asks: the runs are that person's. */
export function runContextOf(parts: ScheduleRouteParts, c: RequestContext, given: JsonObject): JsonObject {
  const caller: RunCaller = { internal: c.get('internal'), role: c.get('role') };
  return { ...parts.checkContext(given, caller), ...(caller.role === null ? {} : { [ROLE_KEY]: caller.role }) };
}

const timeOf = (spec: z.infer<typeof once> | z.infer<typeof cron>): Pick<ScheduleFields, 'runAt' | 'cron'> =>
  'cron' in spec ? { cron: spec.cron } : { runAt: spec.run_at };

export const present = (fields: { readonly [key in keyof ScheduleFields]?: ScheduleFields[key] | undefined }) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<ScheduleFields>;

export const time = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString());

const taskView = (schedule: Schedule) => ({
  id: schedule.scheduleId,
  title: schedule.title,
  prompt: schedule.prompt,
  schedule_type: schedule.type,
  schedule_spec: schedule.type === 'cron' ? { cron: schedule.cron } : { run_at: time(schedule.runAt) },
  timezone: schedule.timezone,
  context_mode: schedule.contextMode,
  thread_id: schedule.threadId,
  assistant_id: schedule.assistantId,
  context: Object.fromEntries(Object.entries(schedule.context).filter(([key]) => key !== ROLE_KEY)),
  // One that is at work says so, unless it is to stop after that.
  status: schedule.active && schedule.status === 'enabled' ? 'running' : schedule.status,
  active: schedule.active,
  overlap_policy: 'skip',
  next_run_at: schedule.status === 'enabled' ? time(schedule.nextRunAt) : null,
  last_run_at: time(schedule.lastRunAt),
  last_run_id: schedule.lastRunId,
  last_thread_id: schedule.lastThreadId,
  last_error: schedule.lastError,
  run_count: schedule.runCount,
  created_at: time(schedule.createdAt),
  updated_at: time(schedule.updatedAt),
});

const runView = (one: Occurrence) => ({
  id: one.occurrenceId,
  task_id: one.scheduleId,
  // Before its run there is no thread to look at.
  thread_id: one.runId === null ? null : one.threadId,
  run_id: one.runId,
  scheduled_for: time(one.scheduledFor),
  trigger: one.trigger,
  status: one.status,
  error: one.error,
  created_at: time(one.createdAt),
  started_at: time(one.startedAt),
  finished_at: time(one.finishedAt),
});
