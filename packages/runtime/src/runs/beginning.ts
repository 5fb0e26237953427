import { Command, Send } from '@langchain/langgraph';
import type { CheckpointStore, Fact, Json, JsonObject, LoadedCheckpoint, Run } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import type { RunParts } from './ports.ts';

/** The thread's newest checkpoint before the run; undefined when it could not be captured, or is not that any more. */
export type Head = LoadedCheckpoint | null | undefined;

/** Where and with what an attempt begins. */
export interface Beginning {
  readonly input: unknown;
  /** Fork from here; null = the thread's head. A resumed attempt never names one: LangGraph would run finished tasks again. */
  readonly checkpointId: string | null;
  /** The store for the attempt's saver. */
  readonly store: CheckpointStore;
}

/** LangGraph keeps the answer of `Command({resume})` as a write of this task, until another answer replaces it. */
const NOBODY = '00000000-0000-0000-0000-000000000000';
const ANSWER = '__resume__';

/**
 * A first attempt begins with what was asked. A later one continues where the run left off: at its last checkpoint, with no input;
 * if it left none, with the original request, unless the answer to an interrupt is stored already.
 *
 * An answer is given once: LangGraph would hand a stored one to the *next* question of the same node, after a crash or in a run without
 * an answer. So the attempt does not see stored answers, except the one of its own run that nobody has taken yet.
 *
 * @param head what the worker captured before a first attempt; it is not loaded again.
 */
export async function whereToBegin(parts: RunParts, run: Run, head: Head): Promise<Beginning> {
  const { checkpoints } = parts.stores;
  const { threadId, request } = run;
  const asked = { input: inputOf(run), checkpointId: request.checkpointId };
  if (run.attempt <= 1)
    return { ...asked, store: head === undefined ? checkpoints : primed(checkpoints, unanswered(head)) };
  const before = await tracesOf(parts, run);
  const now = await checkpoints.load({ threadId, ns: '', checkpointId: null });
  const answers = now?.writes.filter(({ channel }) => channel === ANSWER) ?? [];
  const taken = before.interrupt || before.checkpoint || answers.some(({ taskId }) => taskId !== NOBODY);
  const mine = request.command?.resume !== undefined && !taken;
  const store = primed(checkpoints, mine ? now : unanswered(now));
  const goesOn = before.checkpoint || (request.command !== null && answers.length > 0);
  return goesOn ? { input: null, checkpointId: null, store } : { ...asked, store };
}

/** A checkpoint without an answer that waits for a question. */
function unanswered(head: LoadedCheckpoint | null): LoadedCheckpoint | null {
  if (head === null) return null;
  return { ...head, writes: head.writes.filter(({ taskId, channel }) => taskId !== NOBODY || channel !== ANSWER) };
}

/**
 * The store with its first answer ready: the head as it was loaded right before. Nobody but this attempt can have written since, so a
 * long history is loaded once and not twice.
 */
function primed(store: CheckpointStore, head: LoadedCheckpoint | null): CheckpointStore {
  let fresh = true;
  return {
    ...store,
    load: (input) => {
      const known = fresh && input.ns === '' && input.checkpointId === null;
      fresh = false;
      return known ? Promise.resolve(head) : store.load(input);
    },
    put: (input) => {
      fresh = false;
      return store.put(input);
    },
  };
}

/** What earlier attempts of this run left in the log: a checkpoint of the root graph, a question. Both stand there if they happened (D3). */
async function tracesOf(
  parts: RunParts,
  run: Run,
): Promise<{ readonly checkpoint: boolean; readonly interrupt: boolean }> {
  const { log } = parts.stores;
  const { threadId, runId } = run;
  let interrupt = false;
  let afterSeq = 0;
  for (;;) {
    const page = await log.read({ threadId, runId, afterSeq, limit: 500, maxBytes: 4 * 1024 * 1024 });
    const last: Fact | undefined = page.facts.at(-1);
    if (last === undefined) return { checkpoint: false, interrupt };
    interrupt ||= page.facts.some(({ body }) => body.kind === 'interrupt');
    if (page.facts.some(({ body }) => body.kind === 'checkpoint' && body.ns === ''))
      return { checkpoint: true, interrupt };
    afterSeq = last.seq;
  }
}

function inputOf(run: Run): unknown {
  const { command, input } = run.request;
  if (command === null) return input;
  return new Command({
    ...(command.resume === undefined ? {} : { resume: command.resume }),
    ...(command.update === undefined || command.update === null
      ? {}
      : { update: command.update as Record<string, unknown> }),
    ...(command.goto === undefined || command.goto === null ? {} : { goto: gotoOf(command.goto) }),
  });
}

function gotoOf(goto: Json): string | Send | (string | Send)[] {
  const one = (target: Json): string | Send => {
    if (typeof target === 'string') return target;
    if (isObject(target) && typeof target.node === 'string') return new Send(target.node, target.input ?? null);
    throw new ReindeerError(
      'validation_failed',
      'command.goto must be a node name, {node, input}, or a list of these.',
    );
  };
  return Array.isArray(goto) ? goto.map(one) : one(goto as Json);
}

const isObject = (value: Json): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
