import type { DeliveryReceipt, Fact, Json, NewFact, Run, WorkspaceChanges, WorkspaceWatch } from '@reindeer/protocol';
import { deliveryReceipt, factKey } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import { settledWithin } from '../common/waiting.ts';
import type { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';

/** Longest time for a look at the files of a thread. */
const LOOK_MS = 15_000;
const PAGE = 500;
const PAGE_BYTES = 4 * 1024 * 1024;
const OUTPUTS = '/mnt/user-data/outputs/';
const CLARIFICATION = 'ask_clarification';

type Parts = Pick<RunParts, 'stores' | 'surroundings' | 'settings' | 'graphs'>;

/**
 * The files of a thread as one attempt of a run finds them: untouched → (`touch`) noted. What was noted stands in the log before anything
 * is touched, and of several attempts only the first one's counts, so that a crash in between loses no change (FILE-4).
 */
export class RunFiles {
  readonly #parts: Parts;
  readonly #watch: WorkspaceWatch;
  readonly #local: LocalRun;
  readonly #run: Run;
  #noted: Promise<Json | null> | null = null;

  constructor(parts: Parts, watch: WorkspaceWatch, local: LocalRun, run: Run) {
    this.#parts = parts;
    this.#watch = watch;
    this.#local = local;
    this.#run = run;
  }

  /** Rejects with the signal's reason when the run has lost its right. */
  async touch(): Promise<void> {
    this.#noted ??= this.#note();
    await this.#noted;
    if (this.#local.fenced) this.#local.signal.throwIfAborted();
  }

  /** What would be missing if the run ended now; a look that fails misses nothing. */
  async undelivered(): Promise<readonly string[]> {
    const { settings, surroundings } = this.#parts;
    const { userId, threadId, runId, attempt } = this.#run;
    if (!settings.requirePresented) return [];
    try {
      const before = (await this.#noted) ?? (attempt > 1 ? await notedBefore(this.#parts, this.#run) : undefined);
      if (before === undefined || before === null) return [];
      const changes = await inTime(surroundings.clock, this.#watch.changes({ userId, threadId }, before));
      const produced = producedBy(changes);
      if (produced.length === 0) return [];
      const { presented } = await traces(this.#parts, this.#run);
      return deliveryReceipt({ produced, presented, verified: true }).satisfied ? [] : produced;
    } catch (error) {
      surroundings.logger.warn('what a run has not presented could not be told', { runId, error: String(error) });
      return [];
    }
  }

  /** undefined = this attempt touched nothing; null = it could not be noted. */
  before(): Promise<Json | null> | undefined {
    return this.#noted ?? undefined;
  }

  async #note(): Promise<Json | null> {
    const { stores, surroundings, settings, graphs } = this.#parts;
    const { runId, threadId, userId, assistantId, attempt } = this.#run;
    // What other parts of this program start (items of batches) works on files of another thread, whose runs answer for them.
    if (graphs.get(assistantId)?.internal === true) return null;
    try {
      if (attempt > 1) {
        const earlier = await notedBefore(this.#parts, this.#run);
        if (earlier !== undefined) return earlier;
      }
      const snapshot = await inTime(surroundings.clock, this.#watch.snapshot({ userId, threadId }));
      const { fence } = this.#local;
      const fact: NewFact = { key: factKey.workspace(runId, 'before'), body: { kind: 'workspace-before', snapshot } };
      const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
      const append = () => stores.log.append({ fence, threadId, facts: [fact], now: surroundings.clock.now() });
      const answer = await retry(surroundings.clock, plan, append, () => this.#local.fenced);
      if (answer.outcome === 'fenced') this.#local.stop({ kind: 'fenced' });
      return snapshot;
    } catch (error) {
      surroundings.logger.warn('the files before a run could not be noted', { runId, error: String(error) });
      return null;
    }
  }
}

export interface Delivery {
  /** null: the run touched no file. */
  readonly receipt: DeliveryReceipt | null;
  /** What was delivered is known, and could not be stored. */
  readonly lost: boolean;
  /** The run ended with a question to the user: what it made so far is not its result yet. */
  readonly asks: boolean;
}
const NOTHING: Delivery = { receipt: null, lost: false, asks: false };

/**
 * Compares the files with what they were before the run, stores the changes, and works out the receipt. Never rejects: a look that fails
 * gives a receipt that claims nothing.
 *
 * @param files of the attempt that ends here; null = there was none, as for a run that is only put to an end
 */
export async function deliveryOf(
  parts: Parts & Pick<RunParts, 'workspaces'>,
  local: LocalRun,
  run: Run,
  files: RunFiles | null,
): Promise<Delivery> {
  const { workspaces, surroundings } = parts;
  const { runId, threadId, userId } = run;
  if (workspaces === null || run.attempt < 1) return NOTHING;
  const failed: Delivery = {
    ...NOTHING,
    receipt: deliveryReceipt({ produced: [], presented: [], verified: false }),
  };
  try {
    let before = await files?.before();
    // An earlier attempt may have touched them, also one whose process is gone (RL-23).
    if (before === undefined && (run.attempt > 1 || files === null)) before = await notedBefore(parts, run);
    if (before === undefined) return NOTHING;
    if (before === null) return parts.graphs.get(run.assistantId)?.internal === true ? NOTHING : failed;
    const changes = await inTime(surroundings.clock, workspaces.changes({ userId, threadId }, before));
    const { presented, asks } = await traces(parts, run);
    const produced = producedBy(changes);
    const stored = changes.files.length === 0 || (await store(parts, local, run, changes));
    return { receipt: deliveryReceipt({ produced, presented, verified: true }), lost: !stored, asks };
  } catch (error) {
    surroundings.logger.warn('the files of a run could not be compared', { runId, error: String(error) });
    return failed;
  }
}

const producedBy = ({ files }: WorkspaceChanges): string[] =>
  files
    .filter(({ path, status }) => path.startsWith(OUTPUTS) && (status === 'created' || status === 'modified'))
    .map(({ path }) => path);

async function store(parts: Parts, local: LocalRun, run: Run, changes: WorkspaceChanges): Promise<boolean> {
  const { stores, surroundings, settings } = parts;
  const { threadId, runId } = run;
  const fact: NewFact = { key: factKey.workspace(runId, 'changes'), body: { kind: 'workspace-changes', changes } };
  const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
  try {
    const append = () =>
      stores.log.append({ fence: local.fence, threadId, facts: [fact], now: surroundings.clock.now() });
    const answer = await retry(surroundings.clock, plan, append, () => local.fenced);
    if (answer.outcome === 'fenced') local.stop({ kind: 'fenced' });
    return answer.outcome !== 'fenced';
  } catch (error) {
    surroundings.logger.error('the changes of a run could not be stored', { runId, error: String(error) });
    return false;
  }
}

/** What an earlier attempt noted; undefined = nothing. */
async function notedBefore(parts: Parts, run: Run): Promise<Json | undefined> {
  for await (const { body } of factsOf(parts, run)) if (body.kind === 'workspace-before') return body.snapshot;
  return undefined;
}

/** What the run presented, in all of its attempts, and whether it ended with a question. */
async function traces(
  parts: Parts,
  run: Run,
): Promise<{ readonly presented: { readonly tool: string; readonly path: string }[]; readonly asks: boolean }> {
  const presented: { tool: string; path: string }[] = [];
  let asks = false;
  for await (const { body } of factsOf(parts, run)) {
    if (body.kind === 'message' && body.ns === '' && 'type' in body.message)
      asks = body.message.type === 'tool' && body.message.name === CLARIFICATION;
    if (body.kind === 'update')
      for (const path of artifactsOf(body.values)) presented.push({ tool: 'present_files', path });
  }
  return { presented, asks };
}

/** Paths that a step added to the list of what the user can open. */
function artifactsOf(values: Json): string[] {
  if (typeof values !== 'object' || values === null || Array.isArray(values)) return [];
  const { artifacts } = values as { artifacts?: unknown };
  return Array.isArray(artifacts) ? artifacts.filter((path) => typeof path === 'string') : [];
}

async function* factsOf(parts: Pick<RunParts, 'stores'>, { threadId, runId }: Run): AsyncGenerator<Fact> {
  let afterSeq = 0;
  for (;;) {
    const page = await parts.stores.log.read({ threadId, runId, afterSeq, limit: PAGE, maxBytes: PAGE_BYTES });
    const last = page.facts.at(-1);
    if (last === undefined) return;
    yield* page.facts;
    afterSeq = last.seq;
  }
}

async function inTime<T>(clock: RunParts['surroundings']['clock'], work: Promise<T>): Promise<T> {
  if (await settledWithin(clock, work, LOOK_MS)) return work;
  work.catch(() => undefined);
  throw new Error(`not done within ${LOOK_MS} ms`);
}
