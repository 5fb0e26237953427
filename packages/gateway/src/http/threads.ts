import { z } from '@hono/zod-openapi';
import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import { invalid, notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { anyObject, oneOrMore } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { idSchema, metadataOf, threadParams } from './run-request.ts';
import { messageRoutes } from './thread-messages.ts';
import { threadSearchRoutes } from './thread-search.ts';
import { historyRoutes, stateRoutes } from './thread-state.ts';
import { threadView } from './views.ts';

const tag = 'Threads';
const select = z.array(z.string().max(200)).max(50).nullish();

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
        metadata: anyObject.nullish(),
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
    values: anyObject.nullish(),
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
      query: z.object({ include: oneOrMore }),
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
        metadata: anyObject.nullish(),
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
  threadSearchRoutes(api, parts);
}
