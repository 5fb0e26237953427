import { MemoryDatabase, openMemory } from '@reindeer/database';
import type {
  Batch,
  BatchExecutor,
  BatchItem,
  BatchStore,
  ItemResult,
  ItemWork,
  NewBatch,
  PreparedItem,
  Stores,
} from '@reindeer/protocol';
import { NO_BATCH_USAGE } from '@reindeer/protocol';
import { type Deferred, deferred, type TestSurroundings, testSurroundings, type VirtualClock } from '@reindeer/testkit';
import { ResultKeeper } from '../batches/results.ts';
import { type BatchSettings, DEFAULT_BATCH_SETTINGS } from '../batches/settings.ts';
import { BatchWorker } from '../batches/worker.ts';

export const LEASE = 10_000;
export const USER = 'user-1';
export const THREAD = 'thread-1';
export const address = { batchId: 'batch', userId: USER } as const;

export const good = (result = 'correct source result'): ItemResult => ({
  outcome: 'succeeded',
  result,
  stopReason: null,
  modelName: 'model',
  usage: NO_BATCH_USAGE,
});
export const bad = (error = 'broken'): ItemResult => ({
  outcome: 'failed',
  error,
  stopReason: null,
  modelName: 'model',
  usage: NO_BATCH_USAGE,
});

/** An attempt that stands where the test holds it. */
export interface Child {
  readonly work: ItemWork;
  readonly prepared: Deferred<void>;
  readonly ended: Deferred<ItemResult>;
  /** Its body has begun. */
  readonly begun: Deferred<void>;
  forgotten: boolean;
}

export type Check = NonNullable<PreparedItem['check']>;

/** Children that prepare and end when the test says so; or at once, with `auto`. */
export class HeldExecutor implements BatchExecutor {
  readonly children: Child[] = [];
  auto: ((work: ItemWork) => ItemResult | Promise<ItemResult>) | null = null;
  check: Check | null = null;
  /** Preparation goes through at once. */
  ready = true;

  async prepare(work: ItemWork): Promise<PreparedItem> {
    const child: Child = { work, prepared: deferred(), ended: deferred(), begun: deferred(), forgotten: false };
    this.children.push(child);
    if (!this.ready) await child.prepared.promise;
    const { check } = this;
    return {
      ...(check === null ? {} : { check }),
      run: () => {
        child.begun.resolve();
        return this.auto === null ? child.ended.promise : Promise.resolve(this.auto(work));
      },
      forget: async () => {
        child.forgotten = true;
      },
    };
  }

  child(n: number): Child {
    const child = this.children[n];
    if (child === undefined) throw new Error(`There is no child ${n}.`);
    return child;
  }
}

/** One database, and any number of processes with a worker each, on one clock. */
export class BatchScene {
  readonly surroundings: TestSurroundings;
  readonly database: MemoryDatabase;
  readonly stores: Stores;
  /** Of what is made and read without a name. */
  readonly batchId: string;
  #seed = 1;

  /** @param stores of a real database, which others may have used; absent = a memory one */
  constructor(stores?: Stores, batchId = 'batch') {
    this.batchId = batchId;
    this.surroundings = testSurroundings();
    this.database = new MemoryDatabase(this.surroundings.random);
    this.stores = stores ?? openMemory({ surroundings: this.surroundings, database: this.database });
  }

  get clock(): VirtualClock {
    return this.surroundings.clock;
  }

  async create(part: Partial<NewBatch> & { readonly count?: number } = {}): Promise<Batch> {
    const { count = 1, ...rest } = part;
    const now = this.clock.now();
    await this.stores.threads.create({ threadId: THREAD, userId: USER, metadata: {}, now });
    const answer = await this.stores.batches.create({
      batchId: this.batchId,
      userId: USER,
      threadId: THREAD,
      runId: null,
      toolCallId: null,
      submissionKey: `key:${rest.batchId ?? this.batchId}`,
      title: 'Batch',
      subagentType: 'general-purpose',
      maxLive: count,
      maxRunning: count,
      maxAttempts: 3,
      spec: {},
      notify: false,
      items: Array.from({ length: count }, (_, n) => ({ key: `k${n}`, prompt: `p${n}` })),
      now,
      ...rest,
    });
    if (answer.outcome !== 'created') throw new Error(answer.outcome);
    return answer.batch;
  }

  worker(
    part: {
      readonly store?: BatchStore;
      readonly executor?: BatchExecutor;
      readonly settings?: Partial<BatchSettings>;
      readonly instanceId?: string;
    } = {},
  ) {
    this.#seed += 1;
    const surroundings = testSurroundings({ seed: this.#seed, clock: this.clock });
    const executor = new HeldExecutor();
    const settings = { ...DEFAULT_BATCH_SETTINGS, leaseMs: LEASE, ...part.settings };
    const worker = new BatchWorker({
      store: part.store ?? this.stores.batches,
      executor: part.executor ?? executor,
      results: new ResultKeeper(null, settings, surroundings.logger),
      surroundings,
      settings,
      instanceId: part.instanceId ?? `instance-${this.#seed}`,
      onChange: () => {},
    });
    return { worker, executor, surroundings };
  }

  async items(batchId = this.batchId): Promise<readonly BatchItem[]> {
    const input = { batchId, userId: USER, status: null, offset: 0, limit: 500, results: true };
    return (await this.stores.batches.items(input)) ?? [];
  }

  async item(position = 0): Promise<BatchItem> {
    const item = (await this.items())[position];
    if (item === undefined) throw new Error('There is no such item.');
    return item;
  }
}
