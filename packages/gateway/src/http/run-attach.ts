import { z } from '@hono/zod-openapi';
import { type CancelAction, ReindeerError, type Run } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { flag, isSet, oneOrMore } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { runOf } from './run-reading.ts';
import { runParams, streamModesOf } from './run-request.ts';
import { answerWhenDone, streamRun } from './run-stream.ts';

const tag = 'Runs';
const action = z.enum(['interrupt', 'rollback']);

/** Joining a run: its final values, or its stream. */
export function attachRoutes(api: Api, parts: HttpParts): void {
  const query = z.object({
    cancel_on_disconnect: flag,
    stream_mode: oneOrMore,
    namespace: oneOrMore,
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

/** Cancelling one run, or several of a thread. */
export function cancelRoutes(api: Api, parts: HttpParts): void {
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
