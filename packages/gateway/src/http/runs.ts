import { z } from '@hono/zod-openapi';
import {
  type AdmissionResult,
  type CancelAction,
  isId,
  type JsonObject,
  ReindeerError,
  type Run,
} from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { invalid, notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { planRun, type RunBody, runBody, runParams, streamModesOf, threadParams } from './run-request.ts';
import { answerWhenDone, contentLocation, streamRun } from './run-stream.ts';
import { disconnectSignal } from './sse.ts';
import { factView, messageView, runView } from './views.ts';

const tag = 'Runs';
const statuses = z.enum(['pending', 'running', 'success', 'error', 'timeout', 'interrupted']);
const flag = z.enum(['true', 'false', '1', '0']).optional();
const isSet = (value: string | undefined) => value === 'true' || value === '1';
const action = z.enum(['interrupt', 'rollback']);
const modes = z.union([z.string(), z.array(z.string())]).optional();

/** Routes of runs, with a thread and without one. */
export function runRoutes(api: Api, parts: HttpParts): void {
  creationRoutes(api, parts);
  readingRoutes(api, parts);
  attachRoutes(api, parts);
  cancelRoutes(api, parts);
}

function assistantOf(parts: HttpParts, id: string | null | undefined): string {
  const known = parts.assistants.map((assistant) => assistant.assistantId);
  const wanted = id ?? known[0] ?? '';
  if (!known.includes(wanted))
    throw new ReindeerError(
      'not_found',
      `There is no assistant "${wanted.slice(0, 80)}".${didYouMean(wanted, known)} Available: ${known.join(', ')}.`,
    );
  return wanted;
}

async function createRun(
  c: RequestContext,
  parts: HttpParts,
  body: RunBody,
  routeThread: string | null,
  attached: boolean,
): Promise<Run> {
  const { stopping } = parts.intake();
  if (stopping)
    throw new ReindeerError(
      'shutting_down',
      'The server is stopping and takes no new runs. Try again after its restart.',
      { retryable: true },
    );
  const named = (body.config?.configurable as JsonObject | undefined)?.thread_id;
  if (routeThread === null && named != null && !isId(named))
    throw invalid([
      {
        loc: ['body', 'config', 'configurable', 'thread_id'],
        msg: 'must be 1 to 64 letters, digits, "_" or "-"',
        type: 'invalid_id',
      },
    ]);
  const threadId = routeThread ?? (typeof named === 'string' ? named : null);
  const plan = planRun(body, threadId, attached, parts.limits);
  const assistantId = assistantOf(parts, body.assistant_id);
  const userId = c.get('userId');
  const { checkpointId } = plan.request;
  if (checkpointId !== null) {
    const state =
      threadId === null ? null : await parts.threads.state({ threadId, userId, checkpointId, subgraphs: false });
    if (state === null) throw notFound('checkpoint', checkpointId);
  }
  // A client that leaves before its run is admitted, and whose run would end with it, leaves nothing behind (RA-17).
  const client = disconnectSignal(c.env.outgoing);
  const bound = attached && plan.onDisconnect === 'cancel';
  const input = {
    threadId,
    userId,
    assistantId,
    request: plan.request,
    metadata: plan.metadata,
    multitaskStrategy: plan.multitaskStrategy,
    onDisconnect: plan.onDisconnect,
    crashPolicy: plan.crashPolicy,
    createThread:
      routeThread === null ? plan.ifNotExists !== 'reject' || threadId === null : plan.ifNotExists === 'create',
    idempotencyKey: idempotencyKeyOf(c),
  };
  try {
    return admitted(await parts.runs.create(input, bound ? client.signal : undefined), threadId);
  } finally {
    client.dispose();
  }
}

function idempotencyKeyOf(c: RequestContext): string | null {
  const key = c.req.header('idempotency-key');
  if (key === undefined) return null;
  if (!/^[\x21-\x7e]{1,255}$/.test(key))
    throw new ReindeerError(
      'bad_request',
      'The Idempotency-Key header must be 1 to 255 visible ASCII characters. Use a UUID.',
    );
  return key;
}

function admitted(result: AdmissionResult, threadId: string | null): Run {
  switch (result.outcome) {
    case 'admitted':
    case 'reused':
      return result.run;
    case 'thread_not_found':
      throw new ReindeerError(
        'not_found',
        `There is no thread "${threadId}". Create it first with POST /api/threads, or send "if_not_exists": "create".`,
      );
    case 'conflict': {
      const active = result.active?.runId;
      const detail = active === undefined ? { reason: result.reason } : { reason: result.reason, run_id: active };
      switch (result.reason) {
        case 'key_reused':
          throw new ReindeerError(
            'conflict',
            'This Idempotency-Key was used for another request. Send a new key for a new run, or the same request again.',
            { detail },
          );
        case 'busy':
          throw new ReindeerError(
            'conflict',
            `The thread is busy with run ${active ?? 'of another kind'}. Wait for its end, cancel it, or send "multitask_strategy": "interrupt" or "rollback".`,
            { detail },
          );
        case 'reserved':
          throw new ReindeerError(
            'conflict',
            'The thread is being changed or deleted just now. Try again in a moment.',
            { detail, retryable: true },
          );
        case 'live_elsewhere':
          throw new ReindeerError(
            'conflict',
            'Another instance works on this thread. Cancel its run there, or wait for its end.',
            { detail, retryable: true },
          );
      }
    }
  }
}

function creationRoutes(api: Api, parts: HttpParts): void {
  const answers = {
    200: 'The run.',
    400: 'Malformed messages or an unknown model.',
    404: 'No such thread, assistant or checkpoint.',
    409: 'The thread is busy.',
    422: 'Unknown or unsupported fields.',
  };
  const streamAnswers = {
    ...answers,
    200: 'Server-sent events: first `metadata`, last `end`. `Content-Location` names the run.',
  };
  const waitAnswers = { ...answers, 200: 'The final state values; a failed run has `__error__`.' };

  const places: readonly (readonly [string, z.ZodType<{ thread_id?: string }>])[] = [
    ['/threads/:thread_id/runs', threadParams],
    ['/runs', z.object({})],
  ];
  for (const [path, params] of places) {
    const where = path === '/runs' ? ' on a thread of its own' : '';
    const routeThread = (given: { readonly thread_id?: string }) => given.thread_id ?? null;
    route(
      api,
      { method: 'post', path, tag, summary: `Start a run${where} in the background.`, params, body: runBody, answers },
      async ({ c, params, body }) => {
        const run = await createRun(c, parts, body, routeThread(params), false);
        c.header('content-location', contentLocation(run));
        return c.json(runView(run));
      },
    );
    route(
      api,
      {
        method: 'post',
        path: `${path}/stream`,
        tag,
        summary: `Start a run${where} and stream it.`,
        params,
        body: runBody,
        answers: streamAnswers,
        produces: 'text/event-stream',
      },
      async ({ c, params, body }) => {
        const run = await createRun(c, parts, body, routeThread(params), true);
        return await streamRun(c, parts, run, { lastEventId: null, modes: null, cancelOnDisconnect: false });
      },
    );
    route(
      api,
      {
        method: 'post',
        path: `${path}/wait`,
        tag,
        summary: `Start a run${where} and wait for its end.`,
        params,
        body: runBody,
        answers: waitAnswers,
      },
      async ({ c, params, body }) => {
        const run = await createRun(c, parts, body, routeThread(params), true);
        return await answerWhenDone(c, parts, run, { cancelOnDisconnect: false });
      },
    );
  }
}

async function runOf(c: RequestContext, parts: HttpParts, params: { thread_id: string; run_id: string }): Promise<Run> {
  const run = await parts.runs.get({ runId: params.run_id, threadId: params.thread_id, userId: c.get('userId') });
  if (run === null) throw notFound('run', params.run_id);
  return run;
}

function readingRoutes(api: Api, parts: HttpParts): void {
  const whole = (low: number, high: number, fallback: number) =>
    z.coerce.number().int().min(low).max(high).default(fallback);

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs',
      tag,
      summary: 'Runs of a thread, newest first.',
      params: threadParams,
      query: z.object({
        limit: whole(1, 1000, 10),
        offset: whole(0, Number.MAX_SAFE_INTEGER, 0),
        status: statuses.optional(),
        select: modes,
      }),
      answers: { 200: 'A list of runs.', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const userId = c.get('userId');
      if ((await parts.threads.get({ threadId: params.thread_id, userId })) === null)
        throw notFound('thread', params.thread_id);
      const runs = await parts.runs.list({
        threadId: params.thread_id,
        userId,
        status: query.status ?? null,
        limit: query.limit,
        offset: query.offset,
      });
      const chosen = query.select === undefined ? [] : [query.select].flat();
      return c.json(
        runs
          .map(runView)
          .map((view) =>
            chosen.length === 0
              ? view
              : Object.fromEntries(Object.entries(view).filter(([key]) => chosen.includes(key))),
          ),
      );
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id',
      tag,
      summary: 'A run.',
      params: runParams,
      answers: { 200: 'The run.', 404: 'No such run in this thread.' },
    },
    async ({ c, params }) => c.json(runView(await runOf(c, parts, params))),
  );

  route(
    api,
    {
      method: 'delete',
      path: '/threads/:thread_id/runs/:run_id',
      tag,
      summary: 'Delete a finished run. Its messages stay.',
      params: runParams,
      answers: { 204: 'Deleted.', 404: 'No such run.', 409: 'The run is active.' },
    },
    async ({ c, params }) => {
      const outcome = await parts.runs.remove({
        runId: params.run_id,
        threadId: params.thread_id,
        userId: c.get('userId'),
      });
      if (outcome === 'not_found') throw notFound('run', params.run_id);
      if (outcome === 'active')
        throw new ReindeerError('conflict', 'The run is active. Cancel it, or wait for its end, then delete it.');
      return c.body(null, 204);
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id/messages',
      tag,
      summary: 'Messages of a run, oldest first.',
      params: runParams,
      query: z.object({
        limit: whole(1, 200, 200),
        before_seq: z.coerce.number().int().min(0).optional(),
        after_seq: z.coerce.number().int().min(0).optional(),
      }),
      answers: { 200: '{data, has_more}', 404: 'No such run.' },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const page = await parts.threads.messages({
        threadId: run.threadId,
        userId: c.get('userId'),
        runId: run.runId,
        before: query.before_seq ?? null,
        after: query.after_seq ?? null,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      return c.json({ data: page.facts.map(messageView).filter((row) => row !== null), has_more: page.hasMore });
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id/events',
      tag,
      summary: 'Everything that the run did, in order.',
      params: runParams,
      query: z.object({
        limit: whole(1, 2000, 500),
        after_seq: whole(0, Number.MAX_SAFE_INTEGER, 0),
        event_types: z.string().max(500).optional(),
      }),
      answers: { 200: 'A list.', 404: 'No such run.' },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const page = await parts.threads.facts({
        threadId: run.threadId,
        userId: c.get('userId'),
        runId: run.runId,
        afterSeq: query.after_seq,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      const types = query.event_types?.split(',') ?? [];
      return c.json(page.facts.filter((fact) => types.length === 0 || types.includes(fact.body.kind)).map(factView));
    },
  );
}

function attachRoutes(api: Api, parts: HttpParts): void {
  const query = z.object({
    cancel_on_disconnect: flag,
    stream_mode: modes,
    namespace: modes,
    checkpoint_id: z.string().optional(),
    action: action.optional(),
    wait: flag,
    last_event_id: z.string().max(200).optional(),
  });
  type Query = z.output<typeof query>;
  const modesOf = (given: Query['stream_mode']) => {
    const list = given === undefined ? [] : [given].flat().flatMap((text) => parseModes(text));
    return list.length === 0 ? null : streamModesOf(list);
  };
  const attach = (c: RequestContext, run: Run, given: Query) =>
    streamRun(c, parts, run, {
      lastEventId: c.req.header('last-event-id') ?? given.last_event_id ?? null,
      modes: modesOf(given.stream_mode),
      cancelOnDisconnect: isSet(given.cancel_on_disconnect),
    });

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id/join',
      tag,
      summary: 'Wait for the end of a run: its final values as JSON, or its stream with `Accept: text/event-stream`.',
      params: runParams,
      query,
      answers: { 200: 'The final state values.', 404: 'No such run.' },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const wantsStream = /\btext\/event-stream\b/.test(c.req.header('accept') ?? '');
      return wantsStream
        ? await attach(c, run, query)
        : await answerWhenDone(c, parts, run, { cancelOnDisconnect: isSet(query.cancel_on_disconnect) });
    },
  );

  const streamAnswers = {
    200: 'Server-sent events.',
    202: 'Cancel accepted.',
    204: 'Cancelled and stopped.',
    404: 'No such run.',
    409: 'Not cancellable.',
  };
  const stream = async (c: RequestContext, params: { thread_id: string; run_id: string }, given: Query) => {
    const run = await runOf(c, parts, params);
    if (given.action !== undefined) {
      const accepted = await cancelRun(c, parts, params, given.action, isSet(given.wait));
      if (!/\btext\/event-stream\b/.test(c.req.header('accept') ?? '')) return accepted;
    }
    return await attach(c, run, given);
  };
  const path = '/threads/:thread_id/runs/:run_id/stream';
  const common = { path, tag, params: runParams, query, answers: streamAnswers, produces: 'text/event-stream' };
  // A GET only attaches: it must not change anything.
  route(
    api,
    { ...common, method: 'get', summary: 'The stream of a run, from `Last-Event-ID` on.' },
    ({ c, params, query }) => {
      if (query.action !== undefined)
        throw new ReindeerError('bad_request', 'A GET cannot cancel. Send the same as POST, or use POST …/cancel.');
      return stream(c, params, query);
    },
  );
  route(
    api,
    { ...common, method: 'post', summary: 'The stream of a run; with `action` the run is cancelled first.' },
    ({ c, params, query }) => stream(c, params, query),
  );
}

/** `stream_mode` in a query: one name, several parameters, a comma list, or a JSON list. */
function parseModes(text: string): string[] {
  if (!text.startsWith('[')) return text.split(',').filter((name) => name !== '');
  try {
    const list: unknown = JSON.parse(text);
    return Array.isArray(list) ? list.map(String) : [text];
  } catch {
    return [text];
  }
}

async function cancelRun(
  c: RequestContext,
  parts: HttpParts,
  params: { thread_id: string; run_id: string },
  how: CancelAction,
  wait: boolean,
): Promise<Response> {
  const gone = new AbortController();
  const onClose = () => gone.abort(new Error('The client went away'));
  c.env.outgoing.once('close', onClose);
  try {
    const result = await parts.runs.cancel({
      runId: params.run_id,
      threadId: params.thread_id,
      userId: c.get('userId'),
      action: how,
      wait,
      signal: gone.signal,
    });
    switch (result.outcome) {
      case 'not_found':
        throw notFound('run', params.run_id);
      case 'terminal':
        throw new ReindeerError(
          'conflict',
          `Run ${params.run_id} is not cancellable: it has ended with status ${result.run.status}. Nothing needs to be done.`,
          {
            detail: { reason: 'terminal', status: result.run.status },
          },
        );
      case 'accepted':
        if (wait && result.stopped) return c.body(null, 204);
        return c.json({ run_id: params.run_id, stopped: result.stopped, still_running: result.stillRunning }, 202);
    }
  } finally {
    c.env.outgoing.off('close', onClose);
  }
}

function cancelRoutes(api: Api, parts: HttpParts): void {
  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/runs/:run_id/cancel',
      tag,
      summary:
        'Cancel a run. `wait` answers when nothing of it acts any more; `rollback` restores the state before it.',
      params: runParams,
      query: z.object({ wait: flag, action: action.default('interrupt'), reason: z.string().max(200).optional() }),
      answers: {
        202: 'Accepted; the run is stopping.',
        204: 'Stopped.',
        404: 'No such run.',
        409: 'It has ended already.',
      },
    },
    ({ c, params, query }) => cancelRun(c, parts, params, query.action, isSet(query.wait)),
  );

  route(
    api,
    {
      method: 'post',
      path: '/runs/cancel',
      tag,
      summary: 'Cancel several runs of a thread.',
      query: z.object({ action: action.default('interrupt') }),
      body: z.strictObject({
        thread_id: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/),
        run_ids: z.array(z.string().max(64)).max(100).nullish(),
        status: z.enum(['pending', 'running', 'all']).nullish(),
      }),
      answers: { 204: 'All are stopping or have ended.', 404: 'No such run.' },
    },
    async ({ c, query, body }) => {
      const userId = c.get('userId');
      const threadId = body.thread_id;
      const listed =
        body.run_ids ??
        (await parts.runs.list({ threadId, userId, status: null, limit: 100, offset: 0 }))
          .filter(
            (run) => !run.acknowledged && (body.status == null || body.status === 'all' || run.status === body.status),
          )
          .map((run) => run.runId);
      for (const runId of listed) {
        const result = await parts.runs.cancel({ runId, threadId, userId, action: query.action, wait: false });
        if (result.outcome === 'not_found') throw notFound('run', runId);
      }
      return c.body(null, 204);
    },
  );
}
