import { z } from '@hono/zod-openapi';
import { type JsonObject, newId, ReindeerError } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { gone, type Turn, turnOf } from './replay-turn.ts';
import { type Api, route } from './route.ts';
import { threadParams } from './run-request.ts';
import { copyWorkspace } from './workspace-copy.ts';

const tag = 'Conversations';
const message = z.string().min(1).max(200);

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
        input: turn.input,
        checkpoint: checkpointOf(turn.checkpointId),
        metadata: { regenerate_from_message_id: body.message_id, ...replacing(turn) },
        target_run_id: turn.runId,
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
          ...replacing(turn),
        },
        target_run_id: turn.runId,
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
      if (!turn.succeeded) throw gone('it did not end with an answer');
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

/** What the run that answers again is to say of the turn that it replaces. */
const replacing = ({ originRunId, replaces, checkpointId }: Turn): JsonObject => ({
  ...(originRunId === null ? {} : { regenerate_from_run_id: originRunId }),
  ...(replaces === null ? {} : { regenerate_from_seq: replaces.from, regenerate_to_seq: replaces.to }),
  regenerate_checkpoint_id: checkpointId,
});

const checkpointOf = (checkpointId: string): JsonObject => ({
  checkpoint_ns: '',
  checkpoint_id: checkpointId,
  checkpoint_map: null,
});
