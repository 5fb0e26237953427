import type {
  Batch,
  BatchAddress,
  BatchControl,
  BatchExecutor,
  BatchProgress,
  BatchService,
  BatchStore,
  RunService,
  SubmitBatch,
  Surroundings,
  ThreadService,
} from '@reindeer/protocol';
import { ITEM_USERS, newId, ReindeerError } from '@reindeer/protocol';
import { Bell } from '../common/waiting.ts';
import { BatchReporter } from './report.ts';
import { type FilesOf, ResultKeeper } from './results.ts';
import { type BatchSettings, DEFAULT_BATCH_SETTINGS } from './settings.ts';
import { ItemThreadSweeper } from './sweeper.ts';
import { BatchWatch } from './watch.ts';
import { BatchWorker } from './worker.ts';

export interface BatchParts {
  readonly store: BatchStore;
  readonly surroundings: Surroundings;
  readonly settings?: Partial<BatchSettings>;
  readonly instanceId: string;
  /** null = batches can be read here, and nothing works on them. */
  readonly work: {
    readonly executor: BatchExecutor;
    readonly files: FilesOf | null;
    readonly runs: Pick<RunService, 'create'>;
    /** Absent = items have no threads of their own. */
    readonly threads?: Pick<ThreadService, 'delete'>;
    readonly assistantId: string;
    /** Names of the sub-agents that there are; absent = any is taken. */
    readonly types?: readonly string[];
  } | null;
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

/** Keys and titles. */
const LONGEST_KEY = 128;
const LONGEST_TITLE = 200;

/**
 * Batches in one process: what the gateway and the tools call, the worker, and the reports of ends.
 *
 * States: made → started → stopping → stopped. From the first moment of the stop nothing is submitted any more (BT-19).
 */
export class LocalBatchService implements BatchService {
  readonly settings: Writable<BatchSettings>;
  readonly #store: BatchStore;
  readonly #surroundings: Surroundings;
  readonly #worker: BatchWorker | null;
  readonly #reporter: BatchReporter | null;
  readonly #sweeper: ItemThreadSweeper | null;
  readonly #changes = new Bell();
  readonly #watch: BatchWatch;
  /** Asked each time: the sub-agents may change while the process runs. */
  readonly #types: () => readonly string[] | null;
  #accepting = true;

  constructor(parts: BatchParts) {
    const { store, surroundings, work } = parts;
    const settings: Writable<BatchSettings> = { ...DEFAULT_BATCH_SETTINGS, ...parts.settings };
    this.settings = settings;
    this.#store = store;
    this.#surroundings = surroundings;
    this.#watch = new BatchWatch({ store, clock: surroundings.clock, changes: this.#changes });
    const works = work !== null && settings.enabled;
    this.#types = () => work?.types ?? null;
    this.#reporter = works
      ? new BatchReporter({
          store,
          surroundings,
          files: work.files,
          runs: work.runs,
          assistantId: work.assistantId,
          pollMs: settings.pollMs,
        })
      : null;
    this.#sweeper =
      works && work.threads !== undefined
        ? new ItemThreadSweeper({ store, surroundings, threads: work.threads })
        : null;
    this.#worker = works
      ? new BatchWorker({
          store,
          surroundings,
          settings,
          executor: work.executor,
          results: new ResultKeeper(work.files, settings, surroundings.logger),
          instanceId: parts.instanceId,
          onChange: () => {
            this.#changes.ring();
            this.#reporter?.wake();
          },
        })
      : null;
  }

  /** New limits, for batches and attempts that begin from now on. Whether, how often and under which leases it works stays. */
  configure(settings: BatchSettings): void {
    const { enabled, pollMs, leaseMs } = this.settings;
    Object.assign(this.settings, settings, { enabled, pollMs, leaseMs });
  }

  get working(): boolean {
    return this.#worker !== null && this.#accepting;
  }

  /** Items at work in this process. */
  get running(): number {
    return this.#worker?.size ?? 0;
  }

  async start(): Promise<void> {
    await this.#worker?.start();
    this.#reporter?.start();
    this.#sweeper?.start();
  }

  /** See `BatchWorker.stop`. Idempotent. */
  async stop(bounds: { readonly drainMs: number; readonly hardMs: number }): Promise<readonly string[]> {
    this.#accepting = false;
    try {
      return (await this.#worker?.stop(bounds)) ?? [];
    } finally {
      // Also when the worker could not be stopped (GW-19).
      const little = Math.min(1_000, bounds.hardMs);
      await Promise.all([this.#reporter?.stop(little), this.#sweeper?.stop(little)]);
    }
  }

  async submit(input: SubmitBatch): ReturnType<BatchService['submit']> {
    if (!this.working)
      throw new ReindeerError('shutting_down', 'Nothing here works on batches now. Try again later.', {
        retryable: true,
      });
    const { clock, random } = this.#surroundings;
    const limits = this.#limits(input);
    this.#check(input);
    await input.makeThread?.();
    const answer = await this.#store.create({
      batchId: newId(random),
      userId: input.userId,
      threadId: input.threadId,
      runId: input.runId,
      toolCallId: input.toolCallId,
      submissionKey: input.submissionKey,
      title: input.title.slice(0, LONGEST_TITLE),
      subagentType: input.subagentType,
      items: input.items,
      spec: input.items.some(({ acceptance }) => acceptance !== undefined)
        ? { ...input.spec, judged: true }
        : input.spec,
      notify: input.notify,
      ...limits,
      now: clock.now(),
    });
    if (answer.outcome === 'thread_not_found') return { outcome: 'thread_not_found' };
    if (answer.outcome === 'duplicate_keys') throw invalid('The key of each item must be different from the others.');
    this.#worker?.wake();
    return answer;
  }

  get(input: BatchAddress): Promise<BatchProgress | null> {
    return this.#store.get(input);
  }

  list(input: Parameters<BatchService['list']>[0]): Promise<readonly Batch[]> {
    return this.#store.list({ ...input, limit: Math.min(input.limit, 100) });
  }

  items(input: Parameters<BatchService['items']>[0]): ReturnType<BatchService['items']> {
    return this.#store.items({ ...input, limit: Math.min(input.limit, 500) });
  }

  pause(input: BatchAddress): Promise<BatchControl> {
    return this.#control(this.#store.pause({ ...input, now: this.#surroundings.clock.now() }));
  }
  resume(input: BatchAddress): Promise<BatchControl> {
    return this.#control(this.#store.resume({ ...input, now: this.#surroundings.clock.now() }));
  }
  cancel(input: BatchAddress): Promise<BatchControl> {
    return this.#cancelled(this.#store.cancel({ ...input, now: this.#surroundings.clock.now() }));
  }
  cancelItem(input: BatchAddress & { readonly itemId: string }): Promise<BatchControl> {
    return this.#cancelled(this.#store.cancelItem({ ...input, now: this.#surroundings.clock.now() }));
  }
  retryItem(input: BatchAddress & { readonly itemId: string }): Promise<BatchControl> {
    return this.#control(this.#store.retryItem({ ...input, now: this.#surroundings.clock.now() }));
  }

  watch(input: BatchAddress, signal: AbortSignal): AsyncIterable<BatchProgress> {
    return this.#watch.watch(input, signal);
  }

  /** A thread was deleted: what is at work here for its batches is stopped at once. */
  threadDeleted({ userId }: { readonly userId: string }): void {
    // Items end with the deletion of a thread of their own, which has no batches.
    if (!userId.startsWith(ITEM_USERS)) void this.#worker?.confirm();
  }

  told(input: { readonly batchId: string; readonly ends: number }): Promise<void> {
    return this.#store.told(input);
  }

  /** What is at work here hears of it at once; elsewhere by the next renewal. */
  async #cancelled(work: Promise<BatchControl>): Promise<BatchControl> {
    const answer = await this.#control(work);
    if (answer.outcome === 'done') void this.#worker?.confirm();
    return answer;
  }

  async #control(work: Promise<BatchControl>): Promise<BatchControl> {
    const answer = await work;
    if (answer.outcome === 'done') {
      this.#changes.ring();
      this.#worker?.wake();
      this.#reporter?.wake();
    }
    return answer;
  }

  #limits(input: SubmitBatch) {
    const { settings } = this;
    const maxRunning = whole(
      'max_running',
      input.maxRunning ?? settings.defaultMaxRunning,
      settings.maxRunning,
      'max_running_items',
    );
    const maxLive = whole(
      'max_live',
      input.maxLive ?? Math.max(settings.defaultMaxLive, maxRunning),
      settings.maxLive,
      'max_live_items',
    );
    const maxAttempts = whole('max_attempts', input.maxAttempts ?? settings.maxAttempts, 10);
    if (maxRunning > maxLive)
      throw invalid(`max_running (${maxRunning}) cannot be larger than max_live (${maxLive}). Change one of them.`);
    return { maxRunning, maxLive, maxAttempts };
  }

  #check({ items, subagentType }: SubmitBatch): void {
    const types = this.#types();
    if (types !== null && !types.includes(subagentType))
      throw invalid(`There is no sub-agent "${subagentType.slice(0, 80)}". Choose one of: ${types.join(', ')}.`);
    const { maxItems, maxPromptChars, maxTotalChars } = this.settings;
    if (items.length === 0) throw invalid('A batch needs at least one item.');
    if (items.length > maxItems)
      throw invalid(
        `A batch takes at most ${maxItems} items, and these are ${items.length}. Split it, or raise subagent_batches.max_items.`,
      );
    const keys = new Map<string, number>();
    let total = 0;
    for (const [position, { key, prompt, acceptance = '' }] of items.entries()) {
      if (key.length < 1 || key.length > LONGEST_KEY)
        throw invalid(`Item ${position + 1}: its key must have 1 to ${LONGEST_KEY} characters.`);
      const before = keys.get(key);
      if (before !== undefined)
        throw invalid(
          `Items ${before + 1} and ${position + 1} have the same key "${key.slice(0, 80)}". Each needs its own.`,
        );
      keys.set(key, position);
      if (prompt.trim() === '') throw invalid(`Item ${position + 1} ("${key.slice(0, 80)}") has an empty prompt.`);
      if (prompt.length > maxPromptChars)
        throw invalid(
          `Item ${position + 1} ("${key.slice(0, 80)}"): its prompt has more than ${maxPromptChars} characters. Put the text into a file and name the file.`,
        );
      if (acceptance.length > maxPromptChars)
        throw invalid(
          `Item ${position + 1} ("${key.slice(0, 80)}"): its acceptance criteria have more than ${maxPromptChars} characters.`,
        );
      total += prompt.length + acceptance.length;
    }
    if (total > maxTotalChars)
      throw invalid(`The prompts have more than ${maxTotalChars} characters together. Split the batch.`);
  }
}

const invalid = (message: string): ReindeerError => new ReindeerError('validation_failed', message);

/** @param setting that raises the limit */
function whole(name: string, value: number, high: number, setting?: string): number {
  if (!Number.isInteger(value) || value < 1 || value > high)
    throw invalid(
      `${name} must be a whole number from 1 to ${high}${setting === undefined ? '' : ` (subagent_batches.${setting})`}.`,
    );
  return value;
}
