import type { CancelAction, CheckpointStore, Run } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import { NOT_NEEDED, settledWithin, unlessAborted } from '../common/waiting.ts';
import type { LeaseKeeper } from '../leases/keeper.ts';
import type { RunStreams } from '../stream/streams.ts';
import type { TokenHub } from '../stream/token-hub.ts';
import { Attempt } from './attempt.ts';
import type { Head } from './beginning.ts';
import type { Ending } from './ending.ts';
import { ASKS, endingOf, endingOfOrphan, failure } from './ending.ts';
import { endingOfError, executeGraph, recursionLimitOf } from './execute.ts';
import type { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';
import { waitForPriors } from './priors.ts';
import type { RunRegistry } from './registry.ts';
import { rollBack } from './rollback.ts';
import { type Delivery, deliveryOf } from './run-files.ts';
import { earlierUsage } from './usage.ts';

export interface WorkerParts extends RunParts {
  readonly registry: RunRegistry;
  readonly keeper: LeaseKeeper;
  readonly streams: RunStreams;
  readonly sweep: () => Promise<number>;
  /** What had the thread is over, and runs may be queued behind it. */
  readonly onThreadFree: (threadId: string) => void;
}

/** How long facts and finished effects of a run that ended by itself are waited for. */
const SETTLE_MS = 5_000;

/** `given up`: the store could not answer; the lease runs out and recovery takes the run over. */
type Finalized =
  /** `waiting`: runs are queued on the thread. */
  | { readonly kind: 'done'; readonly run: Run; readonly waiting: boolean }
  | { readonly kind: 'fenced' }
  | { readonly kind: 'given up' };

/**
 * Works one local run from its attachment to its acknowledgement. Never rejects; `local.settled` resolves at the end of every path (RT-10).
 *
 * wait for earlier runs → start the row → stream the graph → close effects and wait for them → flush facts → roll back if asked →
 * finalize (one transaction, terminal fact inside) → settle. A stop leads from any step to the ending of its reason; a fenced run
 * leaves without writing (RL-08). A cancel that was recorded first is adopted at the terminal write (RL-14).
 */
export async function work(given: WorkerParts, local: LocalRun): Promise<void> {
  // Settings may change while it works; an attempt ends under those that it began with.
  const parts: WorkerParts = { ...given, settings: { ...given.settings } };
  let waiting = false;
  const { logger } = parts.surroundings;
  const { runId, threadId } = local.run;
  const hub = parts.streams.openHub(runId, threadId, local.run.attempt + 1, local.begun?.log ?? null);
  try {
    const result = await workToEnd(parts, local, hub);
    if (result.kind === 'done') {
      local.final = result.run;
      waiting = result.waiting;
    } else if (result.kind === 'given up') {
      logger.error('the end of a run could not be stored; recovery will take it over', { runId, threadId });
    } else logger.warn('a run is held by somebody else now', { runId, threadId });
  } catch (error) {
    logger.error('a worker failed; recovery will take its run over', { runId, threadId, error: String(error) });
  } finally {
    parts.keeper.drop(local.fence);
    parts.registry.remove(local);
    parts.streams.closeHub(runId, hub, local.final !== null);
    local.settle();
  }
  if (waiting) parts.onThreadFree(threadId);
  const { final } = local;
  if (final !== null) await callHook(parts, 'onFinished', () => parts.hooks.onFinished?.(final));
}

async function workToEnd(parts: WorkerParts, local: LocalRun, hub: TokenHub): Promise<Finalized> {
  let attempt: Attempt | null = null;
  let ending: Ending | null = null;
  let run = local.run;
  let unanswered: ReindeerError | null = null;
  try {
    await parts.surroundings.probe.at('run.attached', { runId: run.runId });
    ending = local.recovered ? endingOfOrphan(run, parts.settings.maxAttempts) : null;
    if (ending === null) {
      const { head, ...started } = await begin(parts, local);
      run = started.run;
      if (started.outcome === 'cancelled') local.stop(stopOf(run));
      local.signal.throwIfAborted();
      local.phase = 'running';
      attempt = new Attempt(parts, local, run, hub, await earlierUsage(parts, run, run.attempt - 1));
      ending = await streamGraph(parts, local, attempt, head);
    }
  } catch (error) {
    // A stop decides below; what it made the graph throw says nothing.
    if (local.stopReason === null && ReindeerError.is(error) && error.code === 'store_unavailable') {
      // Unknown is not an error of the run: it goes on at its last checkpoint when the store answers again (D1, D7).
      unanswered = error;
    } else if (local.stopReason === null) {
      parts.surroundings.logger.warn('a run failed', { runId: run.runId, error: describe(error) });
      ending = endingOfError(error, recursionLimitOf(parts, run));
    }
  }
  local.phase = 'finalizing';
  await quiet(parts, local, attempt, hub);
  try {
    if (unanswered !== null && local.stopReason === null) return { kind: 'given up' };
    return await finalize(parts, local, { run, attempt, ending });
  } finally {
    attempt?.recorder.abandon();
    attempt?.writes.close();
  }
}

const describe = (error: unknown): string => (error instanceof Error ? (error.stack ?? error.message) : String(error));

const stopOf = (run: Run): Parameters<LocalRun['stop']>[0] =>
  run.status === 'interrupted'
    ? { kind: 'superseded', action: run.cancelAction ?? 'interrupt' }
    : { kind: 'cancelled', action: run.cancelAction ?? 'interrupt' };

/** The row of the run, started, and the state that it begins with. */
async function begin(
  parts: WorkerParts,
  local: LocalRun,
): Promise<{ readonly outcome: 'started' | 'cancelled'; readonly run: Run; readonly head: Head }> {
  if (local.begun !== null) {
    parts.keeper.check(local.fence);
    if (local.fenced) throw heldElsewhere();
    return { outcome: 'started', ...local.begun };
  }
  const head = await headBefore(parts, local);
  return { ...(await startRow(parts, local, head)), head };
}

/** Waits for earlier runs and captures the state that they leave. Both are asked at once; a wait makes the state be asked again. */
async function headBefore(parts: WorkerParts, local: LocalRun): Promise<Head> {
  const { stores, surroundings, settings } = parts;
  const { clock, logger } = surroundings;
  const { threadId, runId, attempt } = local.run;
  const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
  // Only before the first attempt: later the head may be this run's own work, and no target of its rollback.
  const capture = async (): Promise<Head> => {
    if (attempt > 0) return undefined;
    try {
      return await retry(clock, plan, () => stores.checkpoints.load({ threadId, ns: '', checkpointId: null }));
    } catch (error) {
      // The run goes on, a rollback of it will not (RB-02).
      logger.warn('the state before a run could not be captured', { runId, error: String(error) });
      return undefined;
    }
  };
  const [waited, head] = await Promise.all([
    waitForPriors(parts, parts.registry, local, parts.sweep),
    // A superseded run is at work still: its state is not the one that this run begins with.
    parts.registry.ofThread(threadId).some((other) => other.order < local.order) ? undefined : capture(),
  ]);
  return waited ? capture() : head;
}

async function startRow(
  parts: WorkerParts,
  local: LocalRun,
  head: Head,
): Promise<{ outcome: 'started' | 'cancelled'; run: Run }> {
  const { stores, surroundings, settings } = parts;
  const { clock } = surroundings;
  const { runId } = local.run;
  const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
  const checkpointBefore = head === undefined ? null : (head?.checkpointId ?? '');
  await surroundings.probe.at('run.before-start', { runId });
  local.signal.throwIfAborted();
  // Repeating it is safe: a row that runs under this very token answers `started` again.
  const answer = await retry(
    clock,
    plan,
    () => stores.runs.start({ fence: local.fence, checkpointBefore, now: clock.now() }),
    () => local.fenced,
  );
  parts.keeper.check(local.fence);
  if (answer.outcome === 'fenced') local.stop({ kind: 'fenced' });
  if (answer.outcome === 'fenced' || local.fenced) throw heldElsewhere();
  return answer;
}

const heldElsewhere = () => new ReindeerError('fenced', 'The run is held by somebody else now.');

async function streamGraph(parts: WorkerParts, local: LocalRun, attempt: Attempt, head: Head): Promise<Ending> {
  const { clock } = parts.surroundings;
  const { run } = attempt;
  const factory = parts.graphs.get(run.assistantId);
  if (factory === undefined) {
    return failure(
      `There is no assistant "${run.assistantId}" on this server; choose one of ${[...parts.graphs.keys()].join(', ')}.`,
    );
  }
  const saverOn = (store: CheckpointStore) =>
    parts.saverFor({
      threadId: run.threadId,
      fence: local.fence,
      taskName: (taskId) => attempt.taskName(taskId),
      packer: attempt.packer,
      writes: attempt.writes,
      store: patient(parts, local, store),
    });
  const timer = new AbortController();
  if (parts.settings.runTimeoutMs !== null) {
    clock.sleep(parts.settings.runTimeoutMs, timer.signal).then(
      () => local.stop({ kind: 'timeout' }),
      () => undefined,
    );
  }
  const stored = () => unlessAborted(attempt.writes.drained(), local.signal);
  try {
    const ending = await executeGraph(parts, attempt, factory, head, saverOn);
    // The end of a graph means something only behind everything that it wrote.
    await stored();
    return ending;
  } catch (error) {
    // A write that was lost comes before whatever the graph made of it.
    await stored();
    throw error;
  } finally {
    timer.abort(NOT_NEEDED);
  }
}

/** The store that a graph reads, which would end at the first failure: what is safe to repeat is repeated (GW-22). */
function patient(parts: WorkerParts, local: LocalRun, store: CheckpointStore): CheckpointStore {
  const { clock } = parts.surroundings;
  const plan = { tries: parts.settings.writeTries, backoffMs: parts.settings.writeBackoffMs };
  const given = () => local.signal.aborted;
  const repeat = async <T>(work: () => Promise<T>): Promise<T> => {
    const answer = await retry(clock, plan, work, given);
    // However long the answer took: nothing goes on under a lease that has run out (RL-04).
    parts.keeper.check(local.fence);
    if (local.fenced) throw heldElsewhere();
    return answer;
  };
  return {
    ...store,
    load: (input) => repeat(() => store.load(input)),
  };
}

/** Nothing of the run acts any more, or the bound has passed: only then may rollback and terminal write follow (D6). */
async function quiet(parts: WorkerParts, local: LocalRun, attempt: Attempt | null, hub: TokenHub): Promise<void> {
  const { logger, probe } = parts.surroundings;
  const { runId } = local.run;
  hub.flush();
  local.effects.close();
  const wait = local.stopReason === null ? SETTLE_MS : parts.settings.stopWaitMs;
  const left = await local.effects.stopped(wait);
  if (left.length > 0) logger.warn('a run ends while something of it still runs', { runId, effects: left });
  if (attempt !== null && !local.fenced) {
    if (!(await settledWithin(parts.surroundings.clock, attempt.writes.passed(attempt.writes.sent), SETTLE_MS)))
      logger.warn('a run ends while its last writes are not known to be stored', { runId });
    hub.flush();
    const written = await attempt.recorder.drain(SETTLE_MS);
    if (!written || attempt.recorder.dropped > 0) {
      logger.warn('events of a run were not stored', { runId, dropped: attempt.recorder.dropped });
    }
  }
  await probe.at('run.before-finalize', { runId });
}

async function finalize(
  parts: WorkerParts,
  local: LocalRun,
  work: { readonly run: Run; readonly attempt: Attempt | null; readonly ending: Ending | null },
): Promise<Finalized> {
  const { stores, surroundings, settings } = parts;
  const { clock } = surroundings;
  const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
  const touched = work.attempt !== null || work.run.attempt > 0;
  const { run } = work;
  const outcome = work.attempt?.outcome;
  let { ending } = work;
  let delivery: Delivery | null = null;
  for (;;) {
    parts.keeper.check(local.fence);
    if (local.fenced) return { kind: 'fenced' };
    // A run that ended by itself keeps its ending although it was told to stop meanwhile; the row decides (RL-14).
    ending ??= local.stopReason === null ? null : endingOf(local.stopReason, run, touched);
    if (ending !== null && isFailedEdit(run, ending) && touched) ending = { ...ending, rollback: true };
    if (ending?.rollback) {
      // Stored before anything is undone: whoever takes the run over in between must end it, not go on from a head that is no longer its own.
      const first: CancelAction | null = ending.cancel ? await storedAction(parts, local) : 'rollback';
      if (first === null) return { kind: local.fenced ? 'fenced' : 'given up' };
      if (first !== 'rollback') {
        local.adopt(first);
        ending = null;
        continue;
      }
      if (!(await nothingUnderWay(parts, local, work.attempt))) return { kind: local.fenced ? 'fenced' : 'given up' };
      try {
        ending = await rollBack(parts, local, run, ending);
      } catch (error) {
        // Unknown is not a failure (D1): whoever takes the run over rolls it back.
        surroundings.logger.error('a rollback could not be stored', { runId: run.runId, error: describe(error) });
        return { kind: local.fenced ? 'fenced' : 'given up' };
      }
    }
    if (ending === null || local.fenced) return { kind: 'fenced' };
    // Before the end and stored with it; a cancel that is adopted meanwhile changes nothing of what was delivered.
    delivery ??= await deliveryOf(parts, local, run, work.attempt?.files ?? null);
    if (local.fenced) return { kind: 'fenced' };
    const { receipt } = delivery;
    if (ending.status === 'success' && outcome?.stopReason !== ASKS && ending.stopReason !== ASKS)
      ending = delivered(parts, ending, delivery);
    const { status, error, stopReason, cancel } = ending;
    const usage = outcome?.usage ?? (await usageOfOrphan(parts, run));
    /** Times of the writes that nobody has answered: an end that bears one of them is ours. */
    const unanswered = new Set<number>();
    const write = async () => {
      const now = clock.now();
      unanswered.add(now);
      const finalizing = stores.runs.finalize({
        fence: local.fence,
        status,
        error,
        stopReason: stopReason ?? outcome?.stopReason ?? null,
        usage,
        unlessCancelled: !cancel,
        ...(receipt === null ? {} : { receipt }),
        now,
      });
      if (stores.attempts !== undefined) parts.streams.expect(run.runId);
      const answer = await finalizing;
      unanswered.delete(now);
      return answer;
    };
    try {
      local.writesEnd = true;
      const answer = await retry(clock, plan, write, () => local.fenced);
      local.writesEnd = false;
      if (answer.outcome === 'finalized') return { kind: 'done', run: answer.run, waiting: answer.waiting };
      // Acknowledged already: by our own write whose answer was lost, or else by somebody who took the run over.
      if (answer.outcome === 'terminal' && unanswered.has(answer.run.endedAt ?? Number.NaN))
        return { kind: 'done', run: answer.run, waiting: true };
      if (answer.outcome === 'cancel_requested') {
        local.adopt(answer.action);
        ending = null;
        continue;
      }
      local.stop({ kind: 'fenced' });
      return { kind: 'fenced' };
    } catch (error) {
      surroundings.logger.error('a terminal write failed', { runId: run.runId, error: describe(error) });
      return local.fenced ? { kind: 'fenced' } : { kind: 'given up' };
    }
  }
}

/** The action that counts for a run that was told to roll back: the first that was stored, or this one now. null = nobody can tell. */
async function storedAction(parts: WorkerParts, local: LocalRun): Promise<CancelAction | null> {
  const { stores, surroundings, settings } = parts;
  const { clock, logger } = surroundings;
  const { runId } = local.run;
  const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
  const record = () => stores.runs.requestCancel({ runId, action: 'rollback', now: clock.now() });
  try {
    const answer = await retry(clock, plan, record, () => local.fenced);
    // An end that is there already speaks for itself at the terminal write.
    return answer.outcome === 'recorded' ? answer.action : 'rollback';
  } catch (error) {
    logger.error('a rollback could not be noted', { runId, error: describe(error) });
    return null;
  }
}

/** An edited message whose answer failed leaves the conversation as it was before the edit, where that is known (RB-12). */
const isFailedEdit = (run: Run, { status, rollback }: Ending): boolean =>
  status === 'error' && !rollback && run.metadata.replay_kind === 'edit' && run.checkpointBefore !== null;

/** What a run used that is only put to an end here. Counters are no reason to leave it without its end. */
async function usageOfOrphan(parts: WorkerParts, run: Run): Promise<Run['usage']> {
  try {
    return (await earlierUsage(parts, run, run.attempt)).total();
  } catch (error) {
    parts.surroundings.logger.warn('the usage of a run is not known', { runId: run.runId, error: describe(error) });
    return run.usage;
  }
}

/** What a success comes to in the light of what was delivered (RT-04, RT-05). */
function delivered(parts: WorkerParts, ending: Ending, { receipt, lost, asks }: Delivery): Ending {
  if (receipt === null || receipt.produced_paths.length === 0) return ending;
  if (lost) return failure('The delivery receipt could not be stored.', ending.stopReason);
  if (receipt.satisfied || asks || !parts.settings.requirePresented) return ending;
  const [first, second, third, ...more] = receipt.produced_paths;
  const names = [first, second, third].filter((path) => path !== undefined).join(', ');
  return failure(
    `Delivery incomplete: files in outputs were changed and none of them was presented (${names}${more.length > 0 ? `, ${more.length} more` : ''}). Ask the agent to present them.`,
    ending.stopReason ?? 'delivery_incomplete',
  );
}

/**
 * Waits until the writes of the attempt are stored, and lets no further one out: a checkpoint that arrived behind a rollback would bring
 * back what was taken back (RB-01). False = that cannot be told. Then recovery rolls back, under a token that refuses it.
 */
async function nothingUnderWay(parts: WorkerParts, local: LocalRun, attempt: Attempt | null): Promise<boolean> {
  if (attempt === null) return true;
  const { writes } = attempt;
  const passed = Promise.race([writes.passed(writes.sent), local.lost]);
  const inTime = await settledWithin(parts.surroundings.clock, passed, parts.settings.stopWaitMs);
  if (inTime) writes.close();
  return inTime && !local.fenced;
}

/** Runs a hook of the host; its failure is logged and changes nothing (RT-11). */
export async function callHook(
  parts: Pick<RunParts, 'surroundings'>,
  name: string,
  hook: () => void | Promise<void>,
): Promise<void> {
  try {
    await settledOrLate(parts, name, Promise.resolve(hook()));
  } catch (error) {
    parts.surroundings.logger.error('a hook failed', { hook: name, error: describe(error) });
  }
}

const HOOK_MS = 5_000;

async function settledOrLate(parts: Pick<RunParts, 'surroundings'>, name: string, hook: Promise<void>): Promise<void> {
  if (await settledWithin(parts.surroundings.clock, hook, HOOK_MS)) return hook;
  parts.surroundings.logger.warn('a hook takes long and is no longer waited for', { hook: name });
  hook.catch(() => undefined);
}
