import { z } from '@hono/zod-openapi';
import { type Json, type JsonObject, ReindeerError, type StateSnapshot } from '@reindeer/protocol';
import { invalid, notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { anyObject, flag, isSet, oneOrMore, wholeNumber } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { checkMessages, checkpointIdOf, metadataOf, threadParams } from './run-request.ts';
import { stateView, threadView } from './views.ts';

const tag = 'Threads';
const select = z.array(z.string().max(200)).max(50).nullish();
const listOf = (value: string | string[] | undefined) =>
  value === undefined ? null : typeof value === 'string' ? value.split(',') : value;

/** An existing thread without any checkpoint has an empty state; a missing thread or checkpoint is a 404. */
async function stateOf(
  parts: HttpParts,
  threadId: string,
  userId: string,
  checkpointId: string | null,
  subgraphs: boolean,
): Promise<StateSnapshot> {
  const state = await parts.threads.state({ threadId, userId, checkpointId, subgraphs });
  if (state !== null) return state;
  const thread = await parts.threads.get({ threadId, userId });
  if (thread === null) throw notFound('thread', threadId);
  if (checkpointId !== null) throw notFound('checkpoint', checkpointId);
  const checkpoint = { thread_id: threadId, checkpoint_ns: '', checkpoint_id: '', checkpoint_map: null };
  return {
    values: {},
    next: [],
    metadata: {},
    checkpoint,
    parentCheckpoint: null,
    createdAt: null,
    tasks: [],
    interrupts: [],
  };
}

/** The state of a thread: reading it, now and at a checkpoint, and writing it. */
export function stateRoutes(api: Api, parts: HttpParts): void {
  const answers = { 200: 'The state.', 404: 'No such thread or checkpoint.' };
  const query = z.object({ subgraphs: flag, select: oneOrMore });

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/state',
      tag,
      summary: 'The newest state.',
      params: threadParams,
      query,
      answers,
    },
    async ({ c, params, query }) =>
      c.json(
        stateView(
          await stateOf(parts, params.thread_id, c.get('userId'), null, isSet(query.subgraphs)),
          listOf(query.select),
        ),
      ),
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/state/checkpoint',
      tag,
      summary: 'The state at a checkpoint.',
      params: threadParams,
      body: z.strictObject({ checkpoint: anyObject, subgraphs: z.boolean().nullish(), select }),
      answers,
    },
    async ({ c, params, body }) => {
      const checkpointId = checkpointIdOf(body, params.thread_id);
      return c.json(
        stateView(
          await stateOf(parts, params.thread_id, c.get('userId'), checkpointId, body.subgraphs ?? false),
          body.select ?? null,
        ),
      );
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/state/:checkpoint_id',
      tag,
      summary: 'The state at a checkpoint.',
      params: threadParams.extend({ checkpoint_id: z.string().min(1).max(200) }),
      query,
      answers,
    },
    async ({ c, params, query }) =>
      c.json(
        stateView(
          await stateOf(parts, params.thread_id, c.get('userId'), params.checkpoint_id, isSet(query.subgraphs)),
          listOf(query.select),
        ),
      ),
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/state',
      tag,
      summary: 'Write state values, as a node would.',
      params: threadParams,
      body: z.strictObject({
        values: z.unknown().optional(),
        checkpoint: anyObject.nullish(),
        checkpoint_id: z.string().max(200).nullish(),
        as_node: z.string().max(200).nullish(),
      }),
      answers: {
        200: 'The new checkpoint.',
        404: 'No such thread or checkpoint.',
        409: 'A run is active.',
        422: 'Unknown state fields.',
      },
    },
    async ({ c, params, body }) => {
      const values = (body.values ?? null) as Json;
      if (values !== null && !Array.isArray(values)) checkMessages(values);
      const result = await parts.threads.updateState({
        threadId: params.thread_id,
        userId: c.get('userId'),
        values,
        checkpointId: checkpointIdOf(body, params.thread_id),
        asNode: body.as_node ?? null,
      });
      switch (result.outcome) {
        case 'updated':
          return c.json({
            checkpoint: result.checkpoint,
            checkpoint_id: result.checkpoint.checkpoint_id,
            configurable: result.checkpoint,
          });
        case 'busy':
          throw new ReindeerError(
            'conflict',
            'A run of this thread is active. Cancel it, or wait for its end, then write the state.',
          );
        case 'invalid':
          throw invalid([{ loc: ['body', 'values'], msg: result.message, type: 'invalid_values' }]);
        case 'not_found':
          throw notFound('thread or checkpoint', body.checkpoint_id ?? params.thread_id);
      }
    },
  );

  route(
    api,
    {
      method: 'patch',
      path: '/threads/:thread_id/state',
      tag,
      summary: 'Merge metadata of the thread.',
      params: threadParams,
      body: z.strictObject({ metadata: anyObject }),
      answers: { 200: 'The thread.', 404: 'No such thread.' },
    },
    async ({ c, params, body }) => {
      const thread = await parts.threads.update({
        threadId: params.thread_id,
        userId: c.get('userId'),
        metadata: metadataOf(body.metadata),
      });
      if (thread === null) throw notFound('thread', params.thread_id);
      return c.json(threadView(thread, null));
    },
  );
}

/** Past states. */
export function historyRoutes(api: Api, parts: HttpParts): void {
  const answer = async (
    c: RequestContext,
    threadId: string,
    input: { limit: number; before: string | null; metadata: JsonObject; select: readonly string[] | null },
  ) => {
    const states = await parts.threads.history({
      threadId,
      userId: c.get('userId'),
      limit: input.limit,
      before: input.before,
      metadata: input.metadata,
    });
    if (states === null) throw notFound('thread', threadId);
    return c.json(states.map((state) => stateView(state, input.select)));
  };
  const answers = { 200: 'States, newest first.', 404: 'No such thread.' };

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/history',
      tag,
      summary: 'Past states, newest first.',
      params: threadParams,
      query: z.object({ limit: wholeNumber(1, 1000, 10), before: z.string().max(200).optional() }),
      answers,
    },
    ({ c, params, query }) =>
      answer(c, params.thread_id, { limit: query.limit, before: query.before ?? null, metadata: {}, select: null }),
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/history',
      tag,
      summary: 'Past states, newest first.',
      params: threadParams,
      body: z.strictObject({
        limit: z.number().int().min(1).max(1000).nullish(),
        before: z.union([z.string().max(200), anyObject]).nullish(),
        metadata: anyObject.nullish(),
        checkpoint: anyObject.nullish(),
        select,
      }),
      answers,
    },
    ({ c, params, body }) => {
      checkpointIdOf({ checkpoint: body.checkpoint }, params.thread_id);
      return answer(c, params.thread_id, {
        limit: body.limit ?? 10,
        before: beforeOf(body.before),
        metadata: (body.metadata ?? {}) as JsonObject,
        select: body.select ?? null,
      });
    },
  );
}

/** `before` is a checkpoint id, a checkpoint, or a config with one in `configurable`. */
function beforeOf(before: string | Readonly<Record<string, unknown>> | null | undefined): string | null {
  if (before == null || typeof before === 'string') return before ?? null;
  const place = (before.configurable ?? before) as Readonly<Record<string, unknown>>;
  return typeof place.checkpoint_id === 'string' ? place.checkpoint_id : null;
}
