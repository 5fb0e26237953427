import { z } from '@hono/zod-openapi';
import { ROLE_KEY } from '@reindeer/agent';
import type { Json, JsonObject, Schedule } from '@reindeer/protocol';
import type { ScheduleFields } from '@reindeer/runtime';
import { invalid, notFound, type Problem } from './errors.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { checkMessages, idSchema, threadParams } from './run-request.ts';
import { assistantOf, present, runContextOf, type ScheduleRouteParts, time } from './schedules.ts';

const tag = 'Crons';
const PATH = '/runs/crons';
const params = z.object({ cron_id: idSchema });
const object = z.record(z.string(), z.unknown());
const names = z.union([z.literal('*'), z.array(z.string().max(200)).max(200)]);
const MAX_TITLE = 200;
const MAX_PROMPT = 100_000;

/** What LangGraph's SDK may send. null means absent everywhere: the SDK serialises defaults. */
const fields = {
  schedule: z.string().max(200),
  timezone: z.string().max(100).nullish(),
  input: z.unknown().optional(),
  config: object.nullish(),
  context: object.nullish(),
  metadata: object.nullish(),
  enabled: z.boolean().nullish(),
  end_time: z.unknown().optional(),
  interrupt_before: names.nullish(),
  interrupt_after: names.nullish(),
  webhook: z.unknown().optional(),
  on_run_completed: z.enum(['delete', 'keep']).nullish(),
  multitask_strategy: z.enum(['reject', 'interrupt', 'rollback', 'enqueue']).nullish(),
  durability: z.enum(['sync', 'async', 'exit']).nullish(),
  checkpoint_during: z.boolean().nullish(),
  stream_mode: z.union([z.string(), z.array(z.string()).max(20)]).nullish(),
  stream_subgraphs: z.boolean().nullish(),
  stream_resumable: z.boolean().nullish(),
};
const newCron = z.strictObject({ ...fields, assistant_id: z.string().max(64).nullish() });
const editCron = z.strictObject({ ...fields, schedule: fields.schedule.nullish() });
type CronBody = z.output<typeof newCron> | z.output<typeof editCron>;

const filters = z.strictObject({
  assistant_id: z.string().max(64).nullish(),
  thread_id: idSchema.nullish(),
  metadata: object.nullish(),
});
const SORTABLE = ['cron_id', 'assistant_id', 'thread_id', 'created_at', 'updated_at', 'next_run_date'] as const;
const FIELDS = [...SORTABLE, 'end_time', 'schedule', 'timezone', 'payload', 'user_id', 'metadata', 'enabled'] as const;
const search = filters.extend({
  enabled: z.boolean().nullish(),
  limit: z.number().int().min(1).max(1_000).default(10),
  offset: z.number().int().min(0).max(1_000_000).default(0),
  sort_by: z.enum(SORTABLE).nullish(),
  sort_order: z.enum(['asc', 'desc']).nullish(),
  select: z.array(z.enum([...FIELDS, 'on_run_completed'])).nullish(),
});

/** `client.crons` of LangGraph's SDK: the repeated ones among the scheduled tasks, under the names that it uses. */
export function cronRoutes(api: Api, parts: ScheduleRouteParts): void {
  const { schedules } = parts;
  const create = async (c: RequestContext, body: z.output<typeof newCron>, threadId: string | null) => {
    refuseUnsupported(body);
    const prompt = promptOf(body.input);
    const schedule = await schedules.create(c.get('userId'), {
      title: titleOf(body.metadata) ?? firstLine(prompt),
      prompt,
      cron: body.schedule,
      timezone: body.timezone ?? 'UTC',
      contextMode: threadId === null ? 'fresh_thread_per_run' : 'reuse_thread',
      threadId,
      assistantId: assistantOf(parts, body.assistant_id),
      context: runContextOf(parts, c, optionsOf(body)),
      paused: body.enabled === false,
    });
    return c.json(cronView(schedule));
  };
  /** null also for a task of type `once`: it is none of these. */
  const find = async (c: RequestContext, scheduleId: string): Promise<Schedule> => {
    const schedule = await schedules.get({ scheduleId, userId: c.get('userId') });
    if (schedule?.type !== 'cron') throw notFound('cron', scheduleId);
    return schedule;
  };
  const matching = async (
    c: RequestContext,
    wanted: z.output<typeof filters> & { enabled?: boolean | null | undefined },
  ) => {
    const all = await schedules.list({
      userId: c.get('userId'),
      threadId: null,
      limit: schedules.settings.maxPerUser,
      offset: 0,
    });
    return all
      .filter((schedule) => schedule.type === 'cron')
      .map(cronView)
      .filter(
        (cron) =>
          (wanted.assistant_id == null || cron.assistant_id === wanted.assistant_id) &&
          (wanted.thread_id == null || cron.thread_id === wanted.thread_id) &&
          (wanted.enabled == null || cron.enabled === wanted.enabled) &&
          Object.entries(wanted.metadata ?? {}).every(
            ([key, value]) => key === 'title' && cron.metadata[key] === value,
          ),
      );
  };
  const refusals = {
    422: 'A bad time, zone or thread, or an option that scheduled runs do not have; nothing was stored.',
    429: 'As many tasks as one user may have.',
    503: 'Nothing here starts scheduled tasks.',
  };

  route(
    api,
    {
      method: 'post',
      path: PATH,
      tag,
      summary: 'A run at each time of a cron expression, on a new thread each; the threads stay.',
      body: newCron,
      answers: { 200: 'The cron.', ...refusals },
    },
    ({ c, body }) => create(c, body, null),
  );
  route(
    api,
    {
      method: 'post',
      path: `/threads/:thread_id${PATH}`,
      tag,
      summary: 'A run at each time of a cron expression, on this thread, behind what is at work there.',
      params: threadParams,
      body: newCron,
      answers: { 200: 'The cron.', 404: 'No such thread.', ...refusals },
    },
    async ({ c, params: { thread_id: threadId }, body }) => {
      const thread = await parts.threads.get({ threadId, userId: c.get('userId') });
      if (thread === null) throw notFound('thread', threadId);
      return await create(c, body, threadId);
    },
  );
  route(
    api,
    { method: 'post', path: `${PATH}/search`, tag, summary: 'Crons.', body: search, answers: { 200: 'The crons.' } },
    async ({ c, body }) => {
      const found = await matching(c, body);
      const by = body.sort_by ?? 'created_at';
      const sign = body.sort_order === 'asc' ? 1 : -1;
      const sorted = found.toSorted((left, right) => sign * (left[by] ?? '').localeCompare(right[by] ?? ''));
      const page = sorted.slice(body.offset, body.offset + body.limit);
      const chosen: readonly string[] | null = body.select ?? null;
      if (chosen === null) return c.json(page);
      return c.json(
        page.map((cron) => Object.fromEntries(Object.entries(cron).filter(([key]) => chosen.includes(key)))),
      );
    },
  );
  route(
    api,
    {
      method: 'post',
      path: `${PATH}/count`,
      tag,
      summary: 'How many crons there are.',
      body: filters,
      answers: { 200: 'A number.' },
    },
    async ({ c, body }) => c.json((await matching(c, body)).length),
  );
  route(
    api,
    {
      method: 'patch',
      path: `${PATH}/:cron_id`,
      tag,
      summary: 'Change a cron; `enabled` pauses it or lets it go on.',
      params,
      body: editCron,
      answers: { 200: 'The cron.', 404: 'No such cron.', 422: refusals[422] },
    },
    async ({ c, params: { cron_id: scheduleId }, body }) => {
      refuseUnsupported(body);
      const before = await find(c, scheduleId);
      const address = { scheduleId, userId: c.get('userId') };
      const options = body.context == null && body.config == null ? undefined : optionsOf(body);
      const edit: Partial<ScheduleFields> = present({
        title: titleOf(body.metadata),
        prompt: body.input == null ? undefined : promptOf(body.input),
        cron: body.schedule ?? undefined,
        timezone: body.timezone ?? undefined,
        context: options === undefined ? undefined : runContextOf(parts, c, options),
      });
      let after: Schedule | null = before;
      if (Object.keys(edit).length > 0) after = await schedules.edit(address, edit);
      if (body.enabled != null) after = await schedules[body.enabled ? 'resume' : 'pause'](address);
      if (after === null) throw notFound('cron', scheduleId);
      return c.json(cronView(after));
    },
  );
  route(
    api,
    {
      method: 'delete',
      path: `${PATH}/:cron_id`,
      tag,
      summary: 'Delete a cron. Its runs and threads stay.',
      params,
      answers: { 204: 'Deleted.', 404: 'No such cron.' },
    },
    async ({ c, params: { cron_id: scheduleId } }) => {
      await find(c, scheduleId);
      if (!(await schedules.remove({ scheduleId, userId: c.get('userId') }))) throw notFound('cron', scheduleId);
      return c.body(null, 204);
    },
  );
}

/** What would be promised and not kept is refused; what makes no difference (how a run is stored and streamed) is let pass. */
function refuseUnsupported(body: CronBody): void {
  const problems: Problem[] = [];
  const refuse = (field: string, msg: string) =>
    problems.push({ loc: ['body', field], msg, type: 'unsupported_run_option' });
  if (body.webhook != null) refuse('webhook', 'Webhooks are not supported. Look at the runs of the thread instead.');
  if (body.end_time != null) refuse('end_time', 'An end is not supported. Delete the cron when it is over.');
  if (body.on_run_completed === 'delete')
    refuse('on_run_completed', 'Threads are always kept. Use "keep", or delete the thread afterwards.');
  if (body.multitask_strategy != null && body.multitask_strategy !== 'enqueue')
    refuse('multitask_strategy', 'Scheduled runs wait for their turn. Use "enqueue", or leave the field out.');
  for (const field of ['interrupt_before', 'interrupt_after'] as const)
    if ((body[field]?.length ?? 0) > 0) refuse(field, 'Nobody is there to go on after it. Leave the field out.');
  for (const key of Object.keys(body.metadata ?? {})
    .filter((name) => name !== 'title')
    .slice(0, 20))
    refuse(`metadata.${key.slice(0, 80)}`, 'Only "title" is kept, as the name of the task. Leave it out.');
  if (problems.length > 0) throw invalid(problems, 'unsupported_option');
}

/** A scheduled task is one text: what a user would have written. */
function promptOf(input: unknown): string {
  checkMessages((input ?? null) as Json);
  const { messages, ...rest } = (input ?? {}) as JsonObject;
  const list = Array.isArray(messages) ? messages : messages == null ? [] : [messages];
  const [first] = list;
  const text = list.length === 1 && Object.keys(rest).length === 0 ? textOf(first as Json) : null;
  if (text !== null && text.trim() !== '' && text.length <= MAX_PROMPT) return text.trim();
  throw invalid([
    {
      loc: ['body', 'input'],
      msg: `A scheduled run takes one message of a user with text of up to ${MAX_PROMPT} characters: {"messages": [{"role": "user", "content": "…"}]}.`,
      type: 'invalid_type',
    },
  ]);
}

function textOf(message: Json): string | null {
  if (typeof message === 'string') return message;
  if (message === null || typeof message !== 'object') return null;
  const {
    type,
    role = type,
    content,
  } = (Array.isArray(message) ? { role: message[0], content: message[1] } : message) as JsonObject;
  return (role === 'human' || role === 'user') && typeof content === 'string' ? content : null;
}

function titleOf(metadata: Readonly<Record<string, unknown>> | null | undefined): string | undefined {
  const title = metadata?.title;
  if (title == null) return undefined;
  if (typeof title === 'string' && title.trim() !== '' && title.length <= MAX_TITLE) return title.trim();
  throw invalid([
    { loc: ['body', 'metadata', 'title'], msg: `must be text of up to ${MAX_TITLE} characters`, type: 'invalid_type' },
  ]);
}

function firstLine(text: string): string {
  const [line = text] = text.split('\n', 1);
  const characters = [...line.trim()];
  return characters.length <= 80 ? characters.join('') : `${characters.slice(0, 79).join('')}…`;
}

/** Older clients put run options into `config.configurable`. */
function optionsOf({ config, context }: CronBody): JsonObject {
  const other = Object.keys(config ?? {}).find((key) => key !== 'configurable');
  if (other !== undefined)
    throw invalid(
      [
        {
          loc: ['body', 'config', other.slice(0, 80)],
          msg: 'Scheduled runs take "configurable" only. Leave it out.',
          type: 'unsupported_run_option',
        },
      ],
      'unsupported_option',
    );
  return { ...(config?.configurable as JsonObject | undefined), ...(context as JsonObject | null) };
}

const cronView = (schedule: Schedule) => {
  const context = Object.fromEntries(Object.entries(schedule.context).filter(([key]) => key !== ROLE_KEY));
  return {
    cron_id: schedule.scheduleId,
    assistant_id: schedule.assistantId,
    thread_id: schedule.threadId,
    on_run_completed: 'keep',
    end_time: null,
    schedule: schedule.cron ?? '',
    timezone: schedule.timezone,
    created_at: time(schedule.createdAt),
    updated_at: time(schedule.updatedAt),
    payload: {
      assistant_id: schedule.assistantId,
      input: { messages: [{ role: 'user', content: schedule.prompt }] },
      context,
    },
    user_id: schedule.userId,
    next_run_date: schedule.status === 'enabled' ? time(schedule.nextRunAt) : null,
    metadata: { title: schedule.title } as JsonObject,
    enabled: schedule.status === 'enabled',
  };
};
