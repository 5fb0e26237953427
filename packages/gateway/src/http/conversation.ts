import { z } from '@hono/zod-openapi';
import { goalOf, MAX_CONTINUATIONS, MAX_OBJECTIVE, newGoal } from '@reindeer/agent';
import { type JsonObject, ReindeerError, type ThreadService } from '@reindeer/protocol';
import { invalid, notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, route } from './route.ts';
import { threadParams } from './run-request.ts';

const tag = 'Conversations';
/** The node in whose name the state is edited: what follows from the messages follows then too. */
const AS_NODE = 'model';

type Changed = Awaited<ReturnType<ThreadService['changeState']>>;

/** The outcome of an edit that was made, or nothing to do; everything else is an error. */
function settled(result: Changed, threadId: string): { readonly checkpointId: string | null } {
  switch (result.outcome) {
    case 'updated':
      return { checkpointId: result.checkpoint.checkpoint_id };
    case 'unchanged':
      return { checkpointId: null };
    case 'not_found':
      throw notFound('thread', threadId);
    case 'busy':
      throw new ReindeerError('conflict', 'A run works on this thread.', { retryable: true });
    case 'waiting':
      throw new ReindeerError('conflict', 'This thread waits for an answer. Answer it first, or cancel it.');
    case 'invalid':
      throw new ReindeerError('validation_failed', result.message);
  }
}

/** Goals, compaction and suggestions. */
export function conversationRoutes(api: Api, parts: HttpParts): void {
  goalRoutes(api, parts);
  const { conversation, threads, limits } = parts;
  const without = (): never => {
    throw new ReindeerError('not_implemented', 'This server has no model for that.');
  };
  const checkModel = (name: string | null | undefined): string | null => {
    if (name == null || limits.models.includes(name)) return name ?? null;
    throw invalid([
      {
        loc: ['body', 'model_name'],
        msg: `There is no model "${name.slice(0, 80)}". Known: ${limits.models.join(', ')}.`,
        type: 'unknown_model',
      },
    ]);
  };

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/compact',
      tag,
      summary: 'Replaces older messages by a summary.',
      params: threadParams,
      body: z.strictObject({
        force: z.boolean().default(true),
        keep: z
          .union([
            z.number().int().min(1).max(10_000),
            z.strictObject({ type: z.literal('messages'), value: z.number().int().min(1).max(10_000) }),
          ])
          .nullish(),
        agent_name: z.string().max(100).nullish(),
        model_name: z.string().max(200).nullish(),
      }),
      answers: {
        200: '{thread_id, compacted, reason, removed_message_count, preserved_message_count, summary_updated, checkpoint_id, total_tokens}',
        404: 'No such thread.',
        409: 'A run works on the thread, it waits for an answer, or compaction is switched off.',
        502: 'No summary could be made; nothing was changed.',
      },
    },
    async ({ c, params, body }) => {
      const threadId = params.thread_id;
      if (conversation === undefined) return without();
      if (!conversation.compacts)
        throw new ReindeerError('conflict', 'Compaction is switched off on this server (summarization.enabled).');
      const modelName = checkModel(body.model_name);
      if (modelName !== null && (await c.get('permits')?.('models', modelName)) === false)
        throw new ReindeerError('forbidden', `Your role may not use the model "${modelName}".`);
      const userId = c.get('userId');
      let report: JsonObject = {};
      const { checkpointId } = settled(
        await threads.changeState({
          threadId,
          userId,
          asNode: AS_NODE,
          async change({ values, signal }) {
            const keep = typeof body.keep === 'number' ? body.keep : (body.keep?.value ?? null);
            try {
              const made = await conversation.compact({
                values,
                keep,
                force: body.force,
                modelName,
                userId,
                threadId,
                signal,
              });
              report = { ...made.report };
              return made.update;
            } catch (error) {
              if (ReindeerError.is(error) && error.code !== 'model_failed') throw error;
              signal.throwIfAborted();
              throw new ReindeerError('model_failed', 'No summary could be made, so nothing was removed.', {
                cause: error,
              });
            }
          },
        }),
        threadId,
      );
      return c.json({ thread_id: threadId, ...report, checkpoint_id: checkpointId });
    },
  );

  route(
    api,
    {
      method: 'get',
      path: '/suggestions/config',
      tag,
      summary: 'Are next questions suggested, and how many?',
      answers: { 200: '{enabled, max_suggestions}' },
    },
    ({ c }) => {
      const { enabled, most } = conversation?.suggestions ?? { enabled: false, most: 3 };
      return c.json({ enabled, max_suggestions: most });
    },
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/suggestions',
      tag,
      summary: 'Next questions that the user may want to ask. Whatever fails gives an empty list.',
      params: threadParams,
      body: z.strictObject({
        messages: z.array(z.object({ role: z.string().max(40), content: z.string().max(200_000) })).max(1_000),
        n: z.number().int().min(1).max(5).default(3),
        model_name: z.string().max(200).nullish(),
      }),
      answers: { 200: '{suggestions: [text]}', 404: 'No such thread.' },
    },
    async ({ c, params, body }) => {
      const thread = await threads.get({ threadId: params.thread_id, userId: c.get('userId') });
      if (thread === null) throw notFound('thread', params.thread_id);
      const asked = limits.models.includes(body.model_name ?? '') ? (body.model_name ?? null) : null;
      const permitted = asked !== null && (await c.get('permits')?.('models', asked)) !== false;
      const suggestions =
        (await conversation?.suggest({
          messages: body.messages,
          count: body.n,
          modelName: permitted ? asked : null,
          signal: c.req.raw.signal,
        })) ?? [];
      return c.json({ suggestions });
    },
  );
}

function goalRoutes(api: Api, parts: HttpParts): void {
  const { threads, surroundings } = parts;
  const path = '/threads/:thread_id/goal';
  const answers = {
    200: '{goal}',
    404: 'No such thread.',
    409: 'A run works on the thread, or it waits for an answer.',
  };

  route(
    api,
    { method: 'get', path, tag, summary: 'The goal of a thread; null = none.', params: threadParams, answers },
    async ({ c, params }) => {
      const at = { threadId: params.thread_id, userId: c.get('userId') };
      if ((await threads.get(at)) === null) throw notFound('thread', params.thread_id);
      const state = await threads.state({ ...at, checkpointId: null, subgraphs: false });
      return c.json({ goal: goalOf(state?.values ?? {}) });
    },
  );

  route(
    api,
    {
      method: 'put',
      path,
      tag,
      summary: 'Sets the goal; the thread is created if needed. Runs then go on until it is met.',
      params: threadParams,
      body: z.strictObject({
        objective: z
          .string()
          .max(MAX_OBJECTIVE)
          .refine((text) => text.trim() !== '', 'must say what is to be reached'),
        max_continuations: z.number().int().min(0).max(MAX_CONTINUATIONS).default(MAX_CONTINUATIONS),
      }),
      answers,
    },
    async ({ c, params, body }) => {
      const threadId = params.thread_id;
      const userId = c.get('userId');
      const made = await threads.create({ threadId, userId, metadata: {}, ifExists: 'do_nothing' });
      if (made.outcome === 'not_found' || made.outcome === 'conflict') throw notFound('thread', threadId);
      const goal = newGoal(body.objective.trim(), body.max_continuations, surroundings.clock.now());
      settled(
        await threads.changeState({ threadId, userId, asNode: AS_NODE, change: async () => ({ goal }) }),
        threadId,
      );
      return c.json({ goal });
    },
  );

  route(
    api,
    { method: 'delete', path, tag, summary: 'Takes the goal away.', params: threadParams, answers },
    async ({ c, params }) => {
      const threadId = params.thread_id;
      settled(
        await threads.changeState({
          threadId,
          userId: c.get('userId'),
          asNode: AS_NODE,
          change: async ({ values }) => (goalOf(values) === null ? null : { goal: { cleared: true, of: null } }),
        }),
        threadId,
      );
      return c.json({ goal: null });
    },
  );
}
