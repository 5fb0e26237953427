import { z } from '@hono/zod-openapi';
import { type JsonObject, ReindeerError, type Run, type WorkspaceChanges } from '@reindeer/protocol';
import { WORKSPACE_LIMITS } from '@reindeer/sandbox';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { oneOrMore, wholeNumber } from './query.ts';
import { type Api, type RequestContext, route } from './route.ts';
import { eventView, taskOf } from './run-events.ts';
import { runParams, threadParams } from './run-request.ts';
import { messageView, runView } from './views.ts';

const tag = 'Runs';
const statuses = z.enum(['pending', 'running', 'success', 'error', 'timeout', 'interrupted']);

/** The run of the address, which must be of that thread and that user. */
export async function runOf(
  c: RequestContext,
  parts: HttpParts,
  params: { thread_id: string; run_id: string },
): Promise<Run> {
  const run = await parts.runs.get({ runId: params.run_id, threadId: params.thread_id, userId: c.get('userId') });
  if (run === null) throw notFound('run', params.run_id);
  return run;
}

/** Lists, rows, messages and events of runs; deleting a finished one. */
export function readingRoutes(api: Api, parts: HttpParts): void {
  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs',
      tag,
      summary: 'Runs of a thread, newest first.',
      params: threadParams,
      query: z.object({
        limit: wholeNumber(1, 1000, 10),
        offset: wholeNumber(0, Number.MAX_SAFE_INTEGER, 0),
        status: statuses.optional(),
        select: oneOrMore,
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
        limit: wholeNumber(1, 200, 200),
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
      summary: 'What the run did, in order, as events of the published catalogue; read on with `after_seq`.',
      params: runParams,
      query: z.object({
        limit: wholeNumber(1, 2000, 500),
        after_seq: wholeNumber(0, Number.MAX_SAFE_INTEGER, 0),
        event_types: z.string().max(500).optional(),
        task_id: z.string().max(200).optional(),
      }),
      answers: {
        200: 'A list of {thread_id, run_id, seq, event_type, category, content, metadata, created_at}.',
        404: 'No such run.',
      },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const types = query.event_types?.split(',').map((type) => type.trim()) ?? [];
      const events: JsonObject[] = [];
      let afterSeq = query.after_seq;
      for (let pages = 0; pages < MOST_PAGES; pages += 1) {
        const page = await parts.threads.facts({
          threadId: run.threadId,
          userId: c.get('userId'),
          runId: run.runId,
          afterSeq,
          limit: FACTS,
        });
        if (page === null) throw notFound('thread', params.thread_id);
        const last = page.facts.at(-1);
        if (last === undefined) break;
        afterSeq = last.seq;
        for (const fact of page.facts) {
          if (query.task_id !== undefined && taskOf(fact) !== query.task_id) continue;
          const event = eventView(fact);
          if (event === null || (types.length > 0 && !types.includes(String(event.event_type)))) continue;
          events.push(event);
          if (events.length >= query.limit) return c.json(events);
        }
      }
      return c.json(events);
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/threads/:thread_id/runs/:run_id/workspace-changes',
      tag,
      summary: 'What the run changed in the files of its thread.',
      params: runParams,
      query: z.object({ include_files: flag, include_diff: flag }),
      answers: { 200: '{available, version, summary, files, limits}', 404: 'No such run.' },
    },
    async ({ c, params, query }) => {
      const run = await runOf(c, parts, params);
      const changes = await changesOf(parts, run, c.get('userId'));
      const withFiles = query.include_files !== 'false';
      const withDiff = query.include_diff === 'true';
      return c.json({
        available: changes !== null,
        version: 1,
        summary: changes?.summary ?? null,
        ...(withFiles
          ? { files: (changes?.files ?? []).map((file) => (withDiff ? file : { ...file, diff: null })) }
          : {}),
        limits: WORKSPACE_LIMITS,
      });
    },
  );
}

const flag = z.enum(['true', 'false']).optional();
const FACTS = 500;
/** Pages of the log that one answer may read. */
const MOST_PAGES = 200;

/** null: the run has not ended, or it changed nothing. */
async function changesOf(parts: HttpParts, run: Run, userId: string): Promise<WorkspaceChanges | null> {
  let afterSeq = 0;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const page = await parts.threads.facts({
      threadId: run.threadId,
      userId,
      runId: run.runId,
      afterSeq,
      limit: FACTS,
    });
    const last = page?.facts.at(-1);
    if (page === null || last === undefined) return null;
    for (const { body } of page.facts) if (body.kind === 'workspace-changes') return body.changes;
    afterSeq = last.seq;
  }
  return null;
}
