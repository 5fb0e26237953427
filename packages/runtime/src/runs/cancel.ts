import type { CancelAction, CancelResult, Run, RunService, RunStore } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { NOT_NEEDED, settledWithin, unlessAborted } from '../common/waiting.ts';
import { shuttingDown } from './admission.ts';
import { wasCancelled } from './ending.ts';
import type { LocalRun } from './local-run.ts';
import type { WorkerParts } from './worker.ts';

type CancelInput = Parameters<RunService['cancel']>[0];
type Answer = Awaited<ReturnType<RunStore['requestCancel']>>;
type Recorded = Extract<Answer, { outcome: 'recorded' }>;

/** A run of this process is told to stop after this many milliseconds, when the store has not answered by then (RL-25). */
const TELL_MS = 1_000;
/** Further tries to record an intent whose first one failed; the pause before each is twice the one before. */
const MORE_TRIES = 4;

/**
 * Cancels a run: records the intent, where the first action wins (RL-12), and tells the run when it is held here.
 *
 * *Accepted* says that the cancel lasts: its intent is stored, so that whoever takes the run over ends it, or the end itself is. When
 * neither could be stored, a run of this process is told to stop all the same (RL-25), but the answer is `store_unavailable`: once
 * its lease has run out it may start again. *Stopped* says that its end is written and nothing of it acts here any more (D6).
 *
 * @throws ReindeerError `store_unavailable` when nobody can tell whether the cancel lasts; asking again is safe.
 */
export async function cancelRun(parts: WorkerParts, input: CancelInput): Promise<CancelResult> {
  const { clock } = parts.surroundings;
  const late = new AbortController();
  const timer = new AbortController();
  clock.sleep(parts.settings.cancelWaitMs, timer.signal).then(
    () => late.abort(NOT_NEEDED),
    () => undefined,
  );
  // The intent is recorded although its sender left; only the wait is his.
  const over = AbortSignal.any([late.signal, parts.streams.over]);
  try {
    return await cancel(parts, input, over);
  } finally {
    timer.abort(NOT_NEEDED);
  }
}

async function cancel(parts: WorkerParts, input: CancelInput, over: AbortSignal): Promise<CancelResult> {
  const { stores, registry } = parts;
  const { runId, wait } = input;
  // A run of this process is known without the store, and can be stopped without it.
  const found = registry.get(runId)?.run ?? (await answered(parts, stores.runs.get(runId), over));
  if (found === null || !belongs(found, input)) return { outcome: 'not_found' };
  const first = await firstTry(parts, input, over);
  if (first.outcome === 'not_found') return first;
  if (first.outcome === 'terminal') return ended(first.run);
  const local = registry.get(runId);
  if (local === undefined) {
    if (first.outcome === 'unknown') throw first.error;
    void parts.sweep();
    return wait ? untilEnded(parts, input, first.run, over) : accepted(first.run, false, []);
  }
  local.stop({ kind: 'cancelled', action: first.outcome === 'recorded' ? first.action : input.action });
  let known: Answer | null = first.outcome === 'recorded' ? first : await recordLater(parts, input, local, over);
  if (wait) await unlessAborted(local.settled, waitOf(input, over)).catch(() => undefined);
  if (known === null && local.final === null) known = await recordLater(parts, input, local, over);
  const end = local.final ?? (known?.outcome === 'terminal' ? known.run : null);
  if (end !== null && known?.outcome !== 'recorded' && !wasCancelled(end)) return { outcome: 'terminal', run: end };
  const live = local.effects.live();
  if (end !== null) return accepted(end, wait && live.length === 0, live);
  if (known === null) throw cannotTell(runId);
  if (known.outcome !== 'recorded') return { outcome: 'not_found' };
  // Given up or lost here: whoever holds it next writes its end.
  if (wait && local.phase === 'settled') return untilEnded(parts, input, known.run, over);
  return accepted(known.run, false, live);
}

const accepted = (run: Run, stopped: boolean, stillRunning: readonly string[]): CancelResult => ({
  outcome: 'accepted',
  run,
  stopped,
  stillRunning,
});

/** Cancelling what was cancelled is a success (RL-15). */
const ended = (run: Run): CancelResult =>
  run.status === 'interrupted' ? accepted(run, true, []) : { outcome: 'terminal', run };

/** Also ends when the sender leaves. */
const waitOf = (input: CancelInput, over: AbortSignal): AbortSignal =>
  input.signal === undefined ? over : AbortSignal.any([over, input.signal]);

/** Asks the store once. A run of this process does not wait longer than `TELL_MS` for the answer before it is told to stop. */
async function firstTry(
  parts: WorkerParts,
  input: CancelInput,
  over: AbortSignal,
): Promise<Answer | { readonly outcome: 'unknown'; readonly error: unknown }> {
  const { clock, logger } = parts.surroundings;
  const asking = ask(parts, input);
  let local: LocalRun | undefined;
  if (parts.registry.get(input.runId) !== undefined && !(await settledWithin(clock, asking, TELL_MS))) {
    local = parts.registry.get(input.runId);
    local?.stop({ kind: 'cancelled', action: input.action });
  }
  try {
    const answer = await answered(parts, asking, over);
    if (answer.outcome === 'recorded') adoptFirst(local, answer);
    return answer;
  } catch (error) {
    logger.warn('a cancel could not be recorded; a run of this process is stopped all the same', {
      runId: input.runId,
      error: String(error),
    });
    return { outcome: 'unknown', error };
  }
}

/** What the store answers, unless that takes too long. */
async function answered<T>(parts: WorkerParts, answer: Promise<T>, over: AbortSignal): Promise<T> {
  try {
    return await unlessAborted(answer, over);
  } catch (error) {
    answer.catch(() => undefined);
    if (!over.aborted) throw error;
    if (parts.streams.over.aborted) throw shuttingDown();
    throw new ReindeerError('store_unavailable', 'The store did not answer in time; try again in a moment.', {
      cause: error,
      retryable: true,
    });
  }
}

function ask(parts: WorkerParts, { runId, action }: { runId: string; action: CancelAction }): Promise<Answer> {
  return parts.stores.runs.requestCancel({ runId, action, now: parts.surroundings.clock.now() });
}

/** An action that was recorded before ours is the one that counts (RL-12). */
function adoptFirst(local: LocalRun | undefined, answer: Recorded): void {
  if (local !== undefined && local.final === null) local.adopt(answer.action);
}

/** Tries again to record what the run was told; null = the end is written, or the store still cannot answer. */
async function recordLater(
  parts: WorkerParts,
  input: CancelInput,
  local: LocalRun,
  over: AbortSignal,
): Promise<Answer | null> {
  const { clock } = parts.surroundings;
  let pause = parts.settings.writeBackoffMs;
  for (let tried = 0; tried < MORE_TRIES; tried += 1) {
    await clock.sleep(pause, over).catch(() => undefined);
    if (over.aborted || local.final !== null) return null;
    pause *= 2;
    try {
      const answer = await unlessAborted(ask(parts, input), over);
      if (answer.outcome === 'recorded') adoptFirst(local, answer);
      return answer;
    } catch {
      // Asked again, or told to the caller.
    }
  }
  return null;
}

/** Looks at the row until its end is written, the time is up, the sender has left, or this process stops. */
async function untilEnded(
  parts: WorkerParts,
  input: CancelInput,
  known: Run,
  stopping: AbortSignal,
): Promise<CancelResult> {
  const { stores, surroundings, settings } = parts;
  const over = waitOf(input, stopping);
  let run = known;
  while (!run.acknowledged && !over.aborted) {
    await surroundings.clock.sleep(settings.pollRemoteMs, over).catch(() => undefined);
    // A store that cannot answer is asked again.
    if (!over.aborted) run = (await unlessAborted(stores.runs.get(input.runId), over).catch(() => null)) ?? run;
  }
  return accepted(run, run.acknowledged, []);
}

const cannotTell = (runId: string) =>
  new ReindeerError(
    'store_unavailable',
    `Run ${runId} was told to stop, but the store could not record it, so that it may start again; cancel it again in a moment.`,
    { retryable: true },
  );

/** Is this run the caller's, and of the thread it names? Reservations are nobody's (RA-28). */
export function belongs(run: Run, caller: { readonly threadId: string; readonly userId: string }): boolean {
  return run.kind === 'run' && run.threadId === caller.threadId && run.userId === caller.userId;
}
