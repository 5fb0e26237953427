import { z } from '@hono/zod-openapi';
import { type Json, type JsonObject, ReindeerError, type StateSnapshot } from '@reindeer/protocol';
import { invalid, notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { checkMessages, checkpointIdOf, idSchema, metadataOf, threadParams } from './run-request.ts';
import { factView, messageView, stateView, threadView } from './views.ts';

const object = z.record(z.string(), z.unknown());
const select = z.array(z.string().max(200)).max(50).nullish();
const whole = (low: number, high: number, fallback: number) =>
  z.coerce.number().int().min(low).max(high).default(fallback);
const flag = z.enum(['true', 'false', '1', '0']).optional();
const selectQuery = z.union([z.string(), z.array(z.string())]).optional();
const listOf = (value: string | string[] | undefined) =>
  value === undefined ? null : typeof value === 'string' ? value.split(',') : value;

const tag = 'Threads';

/** Routes under `/threads` that are not about runs or files. */
export function threadRoutes(api: Api, parts: HttpParts): void {
  const { threads } = parts;
  const userOf = (c: RequestContext) => c.get('userId');

  route(
    api,
    {
      method: 'post',
      path: '/threads',
      tag,
      summary: 'Create a thread. The same id again answers the existing thread.',
      body: z.strictObject({
        thread_id: idSchema.nullish(),
        assistant_id: z.string().max(200).nullish(),
        metadata: object.nullish(),
        if_exists: z.enum(['do_nothing', 'raise']).nullish(),
        supersteps: z.unknown().optional(),
        ttl: z.unknown().optional(),
      }),
      answers: { 200: 'The thread.', 409: 'The thread exists and `if_exists` is `raise`.', 422: 'A field is wrong.' },
    },
    async ({ c, body }) => {
      for (const field of ['supersteps', 'ttl'] as const)
        if (body[field] != null)
          throw invalid(
            [
              {
                loc: ['body', field],
                msg: `"${field}" is not supported. Leave it out.`,
                type: 'unsupported_thread_option',
              },
            ],
            'unsupported_option',
          );
      const result = await threads.create({
        threadId: body.thread_id ?? null,
        userId: userOf(c),
        metadata: metadataOf(body.metadata),
        ifExists: body.if_exists ?? 'do_nothing',
      });
      if ('thread' in result) return c.json(threadView(result.thread, null));
      if (result.outcome === 'not_found') throw notFound('thread', body.thread_id ?? '');
      throw new ReindeerError(
        'conflict',
        `The thread "${body.thread_id}" exists already. Use it, or choose another id.`,
      );
    },
  );

  const filter = {
    metadata: z
      .record(
        z.string().regex(/^[A-Za-z0-9_-]{1,128}$/, 'must be letters, digits, "_" or "-"'),
        z.union([z.string(), z.number(), z.boolean(), z.null()]),
      )
      .nullish(),
    status: z.enum(['idle', 'busy', 'interrupted', 'error']).nullish(),
    values: object.nullish(),
  };
  const refuseValues = (values: unknown) => {
    if (values != null && Object.keys(values).length > 0)
      throw invalid(
        [
          {
            loc: ['body', 'values'],
            msg: 'Searching by state values is not supported. Filter by metadata.',
            type: 'unsupported_filter',
          },
        ],
        'unsupported_option',
      );
  };
  const filterOf = (metadata: Readonly<Record<string, unknown>> | null | undefined) =>
    Object.fromEntries(Object.entries(metadata ?? {}).filter(([, value]) => value !== undefined)) as JsonObject;

  route(
    api,
    {
      method: 'post',
      path: '/threads/search',
      tag,
      summary: 'List threads: pinned ones first, then newest first. `values` holds the title only.',
      body: z.strictObject({
        ...filter,
        ids: z.array(idSchema).max(1000).nullish(),
        limit: z.number().int().min(1).max(1000).nullish(),
        offset: z.number().int().min(0).nullish(),
        sort_by: z.string().nullish(),
        sort_order: z.string().nullish(),
        select,
        extract: z.unknown().optional(),
      }),
      answers: { 200: 'A list of threads.', 422: 'A field is wrong.' },
    },
    async ({ c, body }) => {
      refuseValues(body.values);
      const userId = userOf(c);
      const limit = body.limit ?? 100;
      const offset = body.offset ?? 0;
      const metadata = filterOf(body.metadata);
      let found = [];
      if (body.ids == null || body.ids.length === 0) {
        found = [...(await threads.search({ userId, metadata, status: body.status ?? null, limit, offset }))];
      } else {
        for (const threadId of new Set(body.ids)) {
          const thread = await threads.get({ threadId, userId });
          if (thread !== null && Object.entries(metadata).every(([key, value]) => thread.metadata[key] === value))
            found.push(thread);
        }
        found = found
          .filter((thread) => body.status == null || thread.status === body.status)
          .slice(offset, offset + limit);
      }
      const chosen = body.select ?? [];
      return c.json(
        found.map((thread) => {
          const view = threadView(thread, null);
          return chosen.length === 0
            ? view
            : Object.fromEntries(Object.entries(view).filter(([key]) => chosen.includes(key)));
        }),
      );
    },
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/count',
      tag,
      summary: 'Count threads.',
      body: z.strictObject(filter),
      answers: { 200: 'A number.' },
    },
    async ({ c, body }) => {
      refuseValues(body.values);
      let count = 0;
      // Bounded: a million threads.
      for (let page = 0; page < 1000; page += 1) {
        const found = await threads.search({
          userId: userOf(c),
          metadata: filterOf(body.metadata),
          status: body.status ?? null,
          limit: 1000,
          offset: page * 1000,
        });
        count += found.length;
        if (found.length < 1000) break;
      }
      return c.json(count);
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id',
      tag,
      summary: 'A thread with its newest state values.',
      params: threadParams,
      query: z.object({ include: z.union([z.string(), z.array(z.string())]).optional() }),
      answers: { 200: 'The thread.', 404: 'No such thread.' },
    },
    async ({ c, params }) => {
      const key = { threadId: params.thread_id, userId: userOf(c) };
      const thread = await threads.get(key);
      if (thread === null) throw notFound('thread', params.thread_id);
      const state = await threads.state({ ...key, checkpointId: null, subgraphs: false });
      return c.json(threadView(thread, state));
    },
  );

  route(
    api,
    {
      method: 'patch',
      path: '/threads/:thread_id',
      tag,
      summary: 'Merge metadata; null removes a key. A change of the pin alone does not move the thread up.',
      params: threadParams,
      body: z.strictObject({
        metadata: object.nullish(),
        ttl: z.null().optional(),
        title: z.string().max(500).nullish(),
      }),
      answers: { 200: 'The thread.', 204: 'Done, with `Prefer: return=minimal`.', 404: 'No such thread.' },
    },
    async ({ c, params, body }) => {
      const thread = await threads.update({
        threadId: params.thread_id,
        userId: userOf(c),
        metadata: metadataOf(body.metadata),
        ...(body.title === undefined ? {} : { title: body.title }),
      });
      if (thread === null) throw notFound('thread', params.thread_id);
      if (/\breturn=minimal\b/.test(c.req.header('prefer') ?? '')) return c.body(null, 204);
      return c.json(threadView(thread, null));
    },
  );

  route(
    api,
    {
      method: 'delete',
      path: '/threads/:thread_id',
      tag,
      summary: 'Delete a thread with its runs, history and files.',
      params: threadParams,
      answers: { 200: 'Deleted.', 404: 'No such thread.', 409: 'A run is active.' },
    },
    async ({ c, params }) => {
      const key = { threadId: params.thread_id, userId: userOf(c) };
      const outcome = await threads.delete(key);
      if (outcome === 'busy')
        throw new ReindeerError(
          'conflict',
          'A run of this thread is active. Cancel it, or wait for its end, then delete the thread.',
        );
      // Also when the row is gone already: an earlier delete may have been cut short before the files.
      await parts.sandboxes.removeThread(key);
      if (outcome === 'not_found') throw notFound('thread', params.thread_id);
      return c.json({ success: true, message: `Thread ${params.thread_id} was deleted.` });
    },
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/copy',
      tag,
      summary: 'Copy the state and messages of a thread into a new one. Files are not copied.',
      params: threadParams,
      answers: { 200: 'The new thread.', 404: 'No such thread.' },
    },
    async ({ c, params }) => {
      const thread = await threads.copy({ threadId: params.thread_id, userId: userOf(c) });
      if (thread === null) throw notFound('thread', params.thread_id);
      return c.json(threadView(thread, null));
    },
  );

  stateRoutes(api, parts);
  historyRoutes(api, parts);
  messageRoutes(api, parts);
}

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

function stateRoutes(api: Api, parts: HttpParts): void {
  const answers = { 200: 'The state.', 404: 'No such thread or checkpoint.' };
  const query = z.object({ subgraphs: flag, select: selectQuery });
  const isSet = (value: string | undefined) => value === 'true' || value === '1';

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
      body: z.strictObject({ checkpoint: object, subgraphs: z.boolean().nullish(), select }),
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
        checkpoint: object.nullish(),
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
      body: z.strictObject({ metadata: object }),
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

function historyRoutes(api: Api, parts: HttpParts): void {
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
      query: z.object({ limit: whole(1, 1000, 10), before: z.string().max(200).optional() }),
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
        before: z.union([z.string().max(200), object]).nullish(),
        metadata: object.nullish(),
        checkpoint: object.nullish(),
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

function messageRoutes(api: Api, parts: HttpParts): void {
  const { threads } = parts;
  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/messages/page',
      tag,
      summary: 'One page of messages, oldest first within the page; `before_seq` turns to the page before.',
      params: threadParams,
      query: z.strictObject({ limit: whole(1, 200, 50), before_seq: z.coerce.number().int().min(0).optional() }),
      answers: { 200: '{data, has_more, next_before_seq}', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const page = await threads.messages({
        threadId: params.thread_id,
        userId: c.get('userId'),
        runId: null,
        before: query.before_seq ?? null,
        after: null,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      const data = page.facts.map(messageView).filter((row) => row !== null);
      return c.json({
        data,
        has_more: page.hasMore,
        next_before_seq: page.hasMore ? (page.facts[0]?.seq ?? null) : null,
      });
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/messages',
      tag,
      summary: 'The newest messages, oldest first.',
      params: threadParams,
      query: z.object({ limit: whole(1, 200, 200) }),
      answers: { 200: 'A list.', 404: 'No such thread.' },
    },
    async ({ c, params, query }) => {
      const page = await threads.messages({
        threadId: params.thread_id,
        userId: c.get('userId'),
        runId: null,
        before: null,
        after: null,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      return c.json(page.facts.map(messageView).filter((row) => row !== null));
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/facts',
      tag,
      summary: 'The log of the thread: everything that happened, in order, each fact once.',
      params: threadParams,
      query: z.object({
        after_seq: whole(0, Number.MAX_SAFE_INTEGER, 0),
        limit: whole(1, 2000, 500),
        run_id: idSchema.optional(),
      }),
      answers: {
        200: '{data, head}; read on with `after_seq` = the last `seq` until it equals `head`.',
        404: 'No such thread.',
      },
    },
    async ({ c, params, query }) => {
      const page = await threads.facts({
        threadId: params.thread_id,
        userId: c.get('userId'),
        runId: query.run_id ?? null,
        afterSeq: query.after_seq,
        limit: query.limit,
      });
      if (page === null) throw notFound('thread', params.thread_id);
      return c.json({ data: page.facts.map(factView), head: page.head });
    },
  );
}
