import { z } from '@hono/zod-openapi';
import { isAgentName } from '@reindeer/agent';
import {
  type AdmissionResult,
  isId,
  type JsonObject,
  ReindeerError,
  type Run,
  type RunRequest,
} from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { invalid, notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { attachRoutes, cancelRoutes } from './run-attach.ts';
import { readingRoutes } from './run-reading.ts';
import { planRun, type RunBody, runBody, threadParams } from './run-request.ts';
import { answerWhenDone, contentLocation, streamRun } from './run-stream.ts';
import { disconnectSignal } from './sse.ts';
import { runView } from './views.ts';

const tag = 'Runs';

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

/**
 * Which graph, and which of the user's agents: an assistant that is none of ours is the name of one (`my_agent` for `my-agent`). An agent that is
 * not there is refused before anything of the run exists.
 */
async function agentOf(
  parts: HttpParts,
  userId: string,
  assistant: string | null | undefined,
  request: RunRequest,
): Promise<{ readonly assistantId: string; readonly request: RunRequest }> {
  const { agents } = parts;
  const named = request.context.agent_name;
  if (typeof named === 'string' && request.context.is_bootstrap !== true && agents !== undefined)
    if (!(await agents.exists(userId, named))) throw notFound('agent', named);
  const known = parts.assistants.map((entry) => entry.assistantId);
  const other = assistant == null || known.includes(assistant) ? null : assistant.toLowerCase().replaceAll('_', '-');
  if (other === null || agents === undefined || !isAgentName(other) || !(await agents.exists(userId, other)))
    return { assistantId: assistantOf(parts, assistant), request };
  return {
    assistantId: assistantOf(parts, null),
    request: { ...request, context: { agent_name: other, ...request.context } },
  };
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
  const plan = planRun(body, threadId, attached, parts.limits, {
    internal: c.get('internal'),
    role: c.get('role'),
  });
  const userId = c.get('userId');
  const { assistantId, request } = await agentOf(parts, userId, body.assistant_id, plan.request);
  const { checkpointId } = request;
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
    request,
    metadata: plan.metadata,
    multitaskStrategy: plan.multitaskStrategy,
    onDisconnect: plan.onDisconnect,
    crashPolicy: plan.crashPolicy,
    createThread:
      routeThread === null ? plan.ifNotExists !== 'reject' || threadId === null : plan.ifNotExists === 'create',
    idempotencyKey: idempotencyKeyOf(c),
    ...(Object.keys(plan.secrets).length === 0 ? {} : { secrets: plan.secrets }),
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
    case 'queued':
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
            `The thread is busy with run ${active ?? 'of another kind'}. Wait for its end, cancel it, or send "multitask_strategy": "enqueue", "interrupt" or "rollback".`,
            { detail },
          );
        case 'reserved':
          throw new ReindeerError(
            'conflict',
            'The thread is being changed or deleted just now. Try again in a moment.',
            { detail, retryable: true },
          );
        case 'queue_full':
          throw new ReindeerError(
            'queue_full',
            'As many runs wait on this thread as may. Try again when one of them has ended, or cancel one.',
            { detail, retryable: true },
          );
        case 'live_elsewhere':
          throw new ReindeerError(
            'conflict',
            'Another instance works on this thread. Cancel its run, or wait for its end.',
            {
              retryable: true,
              detail:
                result.leaseLeftMs === undefined
                  ? detail
                  : { ...detail, retry_after_seconds: Math.ceil(result.leaseLeftMs / 1000) },
            },
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
    429: 'Too many runs wait on the thread.',
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
