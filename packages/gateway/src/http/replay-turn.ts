import { type Fact, type Json, type JsonObject, ReindeerError, type StateSnapshot } from '@reindeer/protocol';
import { notFound } from './errors.ts';
import type { HttpParts } from './parts.ts';
import { runsOf } from './thread-reading.ts';

const PAGE = 200;
const MOST_PAGES = 50;
const FACTS = 500;
/** States that are looked through at once for the beginning of a turn, and how many times. */
const STATES = 10;
const MOST_STATES = 1_000;

export type Thread = { readonly threadId: string; readonly userId: string };

/** A finished turn, as far as it can be taken up again. */
export interface Turn {
  /** The run that wrote the message; null = it was not written here, as in a branch. */
  readonly runId: string | null;
  /** The run that the turn began with: the same one, or the one whose question an answer continued. */
  readonly originRunId: string | null;
  /** What the turn was asked with. */
  readonly input: Json;
  /** Where to begin anew. */
  readonly checkpointId: string;
  /** Where the turn ended; null = not known. */
  readonly lastCheckpointId: string | null;
  /** Did it end with an answer? */
  readonly succeeded: boolean;
  readonly isNewest: boolean;
  readonly message: Json;
  readonly messageIds: readonly string[];
  /** Sequences of the facts that another answer replaces; null = those of its runs. */
  readonly replaces: { readonly from: number; readonly to: number } | null;
}

export const gone = (what: string) =>
  new ReindeerError('conflict', `This turn cannot be taken up again: ${what}. Reload the conversation and try again.`);

/** The finished turn that a message belongs to. @throws ReindeerError `not_found`, or `conflict` when it cannot be taken up again */
export async function turnOf(parts: HttpParts, thread: Thread, messageId: string, type: 'ai' | 'human'): Promise<Turn> {
  const runs = await runsOf(parts, thread);
  if (runs === null) throw notFound('thread', thread.threadId);
  if (runs.some((run) => !run.acknowledged))
    throw new ReindeerError('conflict', 'A run works on this thread.', { retryable: true });
  const fact = await messageFact(parts, thread, messageId, type);
  const at = runs.findIndex((run) => run.runId === fact.runId);
  const run = runs[at];
  if (run === undefined) return await foreignTurn(parts, thread, messageId);
  const origin = runs.slice(at).find((older) => older.request.input !== null && older.request.command === null);
  if (origin === undefined) throw gone('its question is not known any more');
  const own = await traces(parts, thread, origin.runId);
  const end = origin === run ? own : await traces(parts, thread, run.runId);
  // Without a state before the run there is its own input, from which the first step went.
  // A run that was itself begun anew went from the state that it named, and not from the newest one of then.
  const before = origin.request.checkpointId ?? origin.checkpointBefore;
  const checkpointId = before === '' ? own.inputCheckpointId : before;
  if (checkpointId === null || (await parts.threads.state({ ...thread, checkpointId, subgraphs: false })) === null)
    throw gone('the state of before it is not kept any more');
  return {
    runId: run.runId,
    originRunId: origin.runId,
    input: origin.request.input,
    checkpointId,
    lastCheckpointId: end.lastCheckpointId,
    succeeded: run.status === 'success',
    isNewest: at === 0,
    message: fact.body.kind === 'message' ? (fact.body.message as Json) : null,
    messageIds: own.messageIds,
    replaces: null,
  };
}

/**
 * A turn of which no run is known here: a branch has inherited it. It is found in the states: it began with the newest input that does not
 * hold its question yet. Where something else stands between that and the question, it cannot be taken up: that would be lost.
 */
async function foreignTurn(parts: HttpParts, thread: Thread, messageId: string): Promise<Turn> {
  const head = await parts.threads.state({ ...thread, checkpointId: null, subgraphs: false });
  const messages = messagesIn(head);
  const at = messages.findIndex((message) => message.id === messageId);
  const asked = messages.slice(0, at + 1).findLastIndex(isQuestion);
  const question = messages[asked];
  if (head === null || question === undefined) throw gone('its question is not known any more');
  const next = messages.findIndex((message, index) => index > asked && isQuestion(message));
  const turn = messages.slice(asked, next < 0 ? messages.length : next);
  const { start, after } = await startOf(parts, thread, String(question.id));
  const before = messages[asked - 1];
  if (before !== undefined && messagesIn(start).at(-1)?.id !== before.id)
    throw gone('the state of before it is not kept any more');
  const fact = await messageFact(parts, thread, String(question.id), 'human');
  const log = await parts.threads.facts({ ...thread, runId: null, afterSeq: fact.seq, limit: 1 });
  return {
    runId: null,
    originRunId: null,
    input: { messages: [question] },
    checkpointId: (start.parentCheckpoint ?? start.checkpoint).checkpoint_id,
    lastCheckpointId: after === null ? head.checkpoint.checkpoint_id : (after.parentCheckpoint?.checkpoint_id ?? null),
    succeeded: turn.at(-1)?.type === 'ai',
    isNewest: next < 0,
    message: question,
    messageIds: turn.map((message) => String(message.id)),
    replaces: { from: fact.seq, to: log?.head ?? fact.seq },
  };
}

/** The input that a turn began with, and the one that came after the turn; null = none did. */
async function startOf(
  parts: HttpParts,
  thread: Thread,
  questionId: string,
): Promise<{ readonly start: StateSnapshot; readonly after: StateSnapshot | null }> {
  let after: StateSnapshot | null = null;
  let before: string | null = null;
  for (let seen = 0; seen < MOST_STATES; seen += STATES) {
    const page: readonly StateSnapshot[] | null = await parts.threads.history({
      ...thread,
      limit: STATES,
      before,
      metadata: { source: 'input' },
    });
    for (const state of page ?? []) {
      if (!messagesIn(state).some((message) => message.id === questionId)) return { start: state, after };
      after = state;
      before = state.checkpoint.checkpoint_id;
    }
    if (page === null || page.length < STATES) break;
  }
  throw gone('the state of before it is not kept any more');
}

function messagesIn(state: StateSnapshot | null): readonly JsonObject[] {
  const messages = state?.values.messages;
  return Array.isArray(messages) ? (messages as JsonObject[]) : [];
}

const isQuestion = (message: JsonObject): boolean =>
  message.type === 'human' && (message.additional_kwargs as JsonObject | undefined)?.hide_from_ui !== true;

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
