import { z } from '@hono/zod-openapi';
import { type Fact, type Json, type JsonObject, newId, ReindeerError, type Run } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { type Api, route } from './route.ts';
import { threadParams } from './run-request.ts';
import { runsOf } from './thread-reading.ts';
import { copyWorkspace } from './workspace-copy.ts';

const tag = 'Conversations';
const PAGE = 200;
const MOST_PAGES = 50;
const FACTS = 500;
const message = z.string().min(1).max(200);

type Thread = { readonly threadId: string; readonly userId: string };

const gone = (what: string) =>
  new ReindeerError('conflict', `This turn cannot be taken up again: ${what}. Reload the conversation and try again.`);

/** Answer again, edit and answer again, branch (API-10). */
export function replayRoutes(api: Api, parts: HttpParts): void {
  const answers = {
    200: '{input, checkpoint, metadata, target_run_id}: create a run with these.',
    404: 'No such thread or message.',
    409: 'A run works on the thread, or the turn cannot be taken up again.',
  };
  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/runs/regenerate/prepare',
      tag,
      summary: 'What to run to have a turn answered again, from the state of before it.',
      params: threadParams,
      body: z.strictObject({ message_id: message }),
      answers,
    },
    async ({ c, params, body }) => {
      const thread = { threadId: params.thread_id, userId: c.get('userId') };
      const turn = await turnOf(parts, thread, body.message_id, 'ai');
      return c.json({
        input: turn.origin.request.input,
        checkpoint: checkpointOf(turn.checkpointId),
        metadata: {
          regenerate_from_message_id: body.message_id,
          regenerate_from_run_id: turn.origin.runId,
          regenerate_checkpoint_id: turn.checkpointId,
        },
        target_run_id: turn.run.runId,
      });
    },
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/runs/edit-regenerate/prepare',
      tag,
      summary: 'What to run to have another text answered in the place of a message of yours.',
      params: threadParams,
      body: z.strictObject({ human_message_id: message, replacement_text: z.string().min(1).max(1_000_000) }),
      answers: { ...answers, 200: 'As for regenerate, with {replacement_human_message_id, source_message_ids}.' },
    },
    async ({ c, params, body }) => {
      const thread = { threadId: params.thread_id, userId: c.get('userId') };
      const turn = await turnOf(parts, thread, body.human_message_id, 'human');
      const replacement = newId(parts.surroundings.random);
      const source = turn.message as JsonObject;
      return c.json({
        input: {
          messages: [
            {
              type: 'human',
              id: replacement,
              content: body.replacement_text,
              ...(source.additional_kwargs === undefined ? {} : { additional_kwargs: source.additional_kwargs }),
            },
          ],
        },
        checkpoint: checkpointOf(turn.checkpointId),
        metadata: {
          replay_kind: 'edit',
          regenerate_from_message_id: body.human_message_id,
          regenerate_from_run_id: turn.origin.runId,
          regenerate_checkpoint_id: turn.checkpointId,
        },
        target_run_id: turn.run.runId,
        replacement_human_message_id: replacement,
        source_message_ids: turn.messageIds,
      });
    },
  );

  route(
    api,
    {
      method: 'post',
      path: '/threads/:thread_id/branches',
      tag,
      summary: 'A new thread that goes on from a finished turn of this one.',
      params: threadParams,
      body: z.strictObject({
        message_id: message,
        message_ids: z.array(message).max(1_000).optional(),
        title: z.string().max(256).nullish(),
      }),
      answers: {
        200: '{thread_id, parent_thread_id, parent_checkpoint_id, branched_from_message_id, workspace_clone_mode, history_seed_mode}',
        404: 'No such thread or message.',
        409: 'A run works on the thread, or the turn has no end of its own.',
      },
    },
    async ({ c, params, body }) => {
      const thread = { threadId: params.thread_id, userId: c.get('userId') };
      const turn = await turnOf(parts, thread, body.message_id, 'ai');
      if (turn.run.status !== 'success') throw gone('it did not end with an answer');
      const { lastCheckpointId, isNewest } = turn;
      if (lastCheckpointId === null) throw gone('its state is not kept any more');
      let cloned: string = 'skipped_historical_turn';
      const result = await parts.threads.branch({
        ...thread,
        checkpointId: lastCheckpointId,
        ...(body.title == null ? {} : { title: body.title }),
        metadata: {
          branched_from_thread_id: thread.threadId,
          branched_from_checkpoint_id: lastCheckpointId,
          branched_from_message_id: body.message_id,
        },
        // Files have no history: those of an older turn are not known any more.
        copyFiles: async (toThreadId) => {
          if (isNewest)
            cloned = await copyWorkspace(
              parts.sandboxes.files(thread),
              parts.sandboxes.files({ ...thread, threadId: toThreadId }),
              parts.surroundings.logger,
            );
        },
      });
      switch (result.outcome) {
        case 'branched':
          return c.json({
            thread_id: result.threadId,
            parent_thread_id: thread.threadId,
            parent_checkpoint_id: lastCheckpointId,
            branched_from_message_id: body.message_id,
            workspace_clone_mode: cloned,
            history_seed_mode: result.messages > 0 ? 'seeded' : 'skipped_empty',
          });
        case 'busy':
          throw new ReindeerError('conflict', 'A run works on this thread.', { retryable: true });
        case 'gone':
          throw gone('its state is not kept any more');
        case 'not_found':
          throw notFound('thread', thread.threadId);
      }
    },
  );
}

const checkpointOf = (checkpointId: string): JsonObject => ({
  checkpoint_ns: '',
  checkpoint_id: checkpointId,
  checkpoint_map: null,
});

interface Turn {
  /** The run that wrote the message. */
  readonly run: Run;
  /** The run that the turn began with: the same one, or the one whose question an answer continued. */
  readonly origin: Run;
  /** Where to begin anew. */
  readonly checkpointId: string;
  /** Where the turn ended; null = not known. */
  readonly lastCheckpointId: string | null;
  readonly isNewest: boolean;
  readonly message: Json;
  readonly messageIds: readonly string[];
}

/** The finished turn that a message belongs to. @throws ReindeerError `not_found`, or `conflict` when it cannot be taken up again */
async function turnOf(parts: HttpParts, thread: Thread, messageId: string, type: 'ai' | 'human'): Promise<Turn> {
  const runs = await runsOf(parts, thread);
  if (runs === null) throw notFound('thread', thread.threadId);
  if (runs.some((run) => !run.acknowledged))
    throw new ReindeerError('conflict', 'A run works on this thread.', { retryable: true });
  const fact = await messageFact(parts, thread, messageId, type);
  const at = runs.findIndex((run) => run.runId === fact.runId);
  const run = runs[at];
  if (run === undefined) throw gone('the run is not known any more');
  const origin = runs.slice(at).find((older) => older.request.input !== null && older.request.command === null);
  if (origin === undefined) throw gone('its question is not known any more');
  const own = await traces(parts, thread, origin.runId);
  const end = origin === run ? own : await traces(parts, thread, run.runId);
  // Without a state before the run there is its own input, from which the first step went.
  const checkpointId = origin.checkpointBefore === '' ? own.inputCheckpointId : origin.checkpointBefore;
  if (checkpointId === null || (await parts.threads.state({ ...thread, checkpointId, subgraphs: false })) === null)
    throw gone('the state of before it is not kept any more');
  return {
    run,
    origin,
    checkpointId,
    lastCheckpointId: end.lastCheckpointId,
    isNewest: at === 0,
    message: fact.body.kind === 'message' ? (fact.body.message as Json) : null,
    messageIds: own.messageIds,
  };
}

async function messageFact(parts: HttpParts, thread: Thread, messageId: string, type: string): Promise<Fact> {
  let before: number | null = null;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const page = await parts.threads.messages({ ...thread, runId: null, before, after: null, limit: PAGE });
    const found = page?.facts.findLast(
      ({ body }) =>
        body.kind === 'message' &&
        body.ns === '' &&
        'type' in body.message &&
        body.message.type === type &&
        body.message.id === messageId,
    );
    if (found !== undefined) return found;
    if (page?.hasMore !== true) break;
    before = page.facts[0]?.seq ?? 0;
  }
  throw notFound(type === 'ai' ? 'answer' : 'message of yours', messageId);
}

async function traces(
  parts: HttpParts,
  thread: Thread,
  runId: string,
): Promise<{
  readonly inputCheckpointId: string | null;
  readonly lastCheckpointId: string | null;
  readonly messageIds: readonly string[];
}> {
  let inputCheckpointId: string | null = null;
  let lastCheckpointId: string | null = null;
  const messageIds = new Set<string>();
  let afterSeq = 0;
  for (let pages = 0; pages < MOST_PAGES * 4; pages += 1) {
    const page = await parts.threads.facts({ ...thread, runId, afterSeq, limit: FACTS });
    const last = page?.facts.at(-1);
    if (page === null || last === undefined) break;
    for (const { body } of page.facts) {
      if (body.kind === 'checkpoint' && body.ns === '') {
        if (body.step === -1 && body.source === 'input') inputCheckpointId ??= body.checkpointId;
        lastCheckpointId = body.checkpointId;
      }
      if (body.kind === 'message' && body.ns === '' && 'type' in body.message) messageIds.add(String(body.message.id));
    }
    afterSeq = last.seq;
  }
  return { inputCheckpointId, lastCheckpointId, messageIds: [...messageIds] };
}
