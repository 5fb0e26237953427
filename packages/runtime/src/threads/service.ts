import type {
  Fact,
  Fence,
  Graph,
  GraphConfig,
  Json,
  JsonObject,
  StateSnapshot,
  Thread,
  ThreadService,
  ThreadStatus,
} from '@reindeer/protocol';
import { newId, ReindeerError } from '@reindeer/protocol';
import type { RunParts } from '../runs/ports.ts';
import type { Reservations } from '../runs/reservation.ts';
import { branchThread } from './branch.ts';
import { toStateSnapshot } from './snapshot.ts';

const MESSAGE_PAGE = 200;
const FACT_PAGE_BYTES = 4 * 1024 * 1024;

/** Threads of one user at a time; another user's thread reads as missing everywhere. */
export class LocalThreadService implements ThreadService {
  readonly #parts: RunParts;
  readonly #reservations: Reservations;

  readonly #onDeleted: (threadId: string) => void;

  constructor(parts: { base: RunParts; reservations: Reservations; onDeleted: (threadId: string) => void }) {
    this.#parts = parts.base;
    this.#reservations = parts.reservations;
    this.#onDeleted = parts.onDeleted;
  }

  async create(input: {
    threadId: string | null;
    userId: string;
    metadata: JsonObject;
    ifExists: 'do_nothing' | 'raise';
  }): ReturnType<ThreadService['create']> {
    const { stores, surroundings } = this.#parts;
    const { userId, metadata } = input;
    const threadId = input.threadId ?? newId(surroundings.random);
    const result = await stores.threads.create({ threadId, userId, metadata, now: surroundings.clock.now() });
    return result.outcome === 'exists' && input.ifExists === 'raise' ? { outcome: 'conflict' } : result;
  }

  get(input: { threadId: string; userId: string }): Promise<Thread | null> {
    return this.#parts.stores.threads.get(input);
  }

  search(input: {
    userId: string;
    metadata: JsonObject;
    status: ThreadStatus | null;
    limit: number;
    offset: number;
  }): Promise<readonly Thread[]> {
    return this.#parts.stores.threads.search(input);
  }

  async find(input: Parameters<ThreadService['find']>[0]): ReturnType<ThreadService['find']> {
    const { userId, ...search } = input;
    if ((await this.get({ threadId: input.threadId, userId })) === null) return null;
    return this.#parts.stores.log.find(search);
  }

  update(input: {
    threadId: string;
    userId: string;
    metadata: JsonObject;
    title?: string | null;
  }): Promise<Thread | null> {
    // Pinning a thread is not using it: its place among the recent ones stays.
    const keys = Object.keys(input.metadata);
    const touch = input.title !== undefined || keys.some((key) => key !== 'pinned');
    return this.#parts.stores.threads.update({ ...input, touch, now: this.#parts.surroundings.clock.now() });
  }

  async delete(input: Parameters<ThreadService['delete']>[0]): ReturnType<ThreadService['delete']> {
    const { stores, hooks } = this.#parts;
    const { threadId, userId, item } = input;
    const result = await this.#reservations.reserve(
      { threadId, userId, kind: 'delete', assistantId: this.#anyAssistant() },
      async ({ fence, gone }) => {
        // First what is outside the store, while nobody else can have the thread: once its row is gone, the id may be taken anew,
        // and what is deleted then would be the newcomer's. Cut short in between, the thread is still there and is deleted again.
        await hooks.onThreadDeleting?.({ threadId, userId });
        const input = { fence, threadId, userId, ...(item === undefined ? {} : { item }) };
        const deleted = await stores.threads.delete(input);
        if (deleted.outcome === 'ok') gone();
        return deleted;
      },
    );
    if (result.outcome !== 'done') return result.outcome;
    if (result.value.outcome === 'fenced') return 'busy';
    this.#onDeleted(threadId);
    hooks.onThreadDeleted?.({ threadId, userId });
    return 'deleted';
  }

  async copy(input: { threadId: string; userId: string }): Promise<Thread | null> {
    const { stores, surroundings } = this.#parts;
    const { random, clock } = surroundings;
    const { threadId, userId } = input;
    return stores.threads.copy({ fromThreadId: threadId, toThreadId: newId(random), userId, now: clock.now() });
  }

  branch(input: Parameters<ThreadService['branch']>[0]): ReturnType<ThreadService['branch']> {
    const { userId } = input;
    return branchThread(this.#parts, this.#reservations, this.#anyAssistant(), input, ({ threadId, title, fence }) =>
      // A graph without titles has none in its state: then that of the row is all there is.
      this.#write({ threadId, userId, values: { title }, checkpointId: null, asNode: null, fence }),
    );
  }

  async state(input: {
    threadId: string;
    userId: string;
    checkpointId: string | null;
    subgraphs: boolean;
  }): Promise<StateSnapshot | null> {
    const { threadId, checkpointId } = input;
    if ((await this.get(input)) === null) return null;
    const graph = await this.#graph(input, null);
    const snapshot = await graph.getState(configAt(threadId, checkpointId), { subgraphs: input.subgraphs });
    if (checkpointId !== null && snapshot.createdAt === undefined && snapshot.metadata === undefined) return null;
    return toStateSnapshot(snapshot);
  }

  async history(input: {
    threadId: string;
    userId: string;
    limit: number;
    before: string | null;
    metadata: JsonObject;
  }): Promise<readonly StateSnapshot[] | null> {
    const { threadId, limit, before, metadata } = input;
    if ((await this.get(input)) === null) return null;
    if (limit <= 0) return [];
    const graph = await this.#graph(input, null);
    const states: StateSnapshot[] = [];
    const history = graph.getStateHistory(configAt(threadId, null), {
      limit,
      ...(before === null ? {} : { before: configAt(threadId, before) }),
      ...(Object.keys(metadata).length === 0 ? {} : { filter: metadata }),
    });
    for await (const snapshot of history) {
      states.push(toStateSnapshot(snapshot));
      if (states.length >= limit) break;
    }
    return states;
  }

  async updateState(input: {
    threadId: string;
    userId: string;
    values: Json;
    checkpointId: string | null;
    asNode: string | null;
  }): ReturnType<ThreadService['updateState']> {
    const { threadId, userId, values, checkpointId, asNode } = input;
    if ((await this.get(input)) === null) return { outcome: 'not_found' };
    const assistantId = this.#anyAssistant();
    const result = await this.#reservations.reserve(
      { threadId, userId, kind: 'checkpoint_write', assistantId },
      async ({ fence }) => this.#write({ threadId, userId, values, checkpointId, asNode, fence }),
    );
    return result.outcome === 'done' ? result.value : { outcome: result.outcome };
  }

  async changeState(input: Parameters<ThreadService['changeState']>[0]): ReturnType<ThreadService['changeState']> {
    const { threadId, userId, asNode, change } = input;
    if ((await this.get({ threadId, userId })) === null) return { outcome: 'not_found' };
    const result = await this.#reservations.reserve(
      { threadId, userId, kind: 'checkpoint_write', assistantId: this.#anyAssistant() },
      async ({ fence, signal }): ReturnType<ThreadService['changeState']> => {
        const graph = await this.#graph({ threadId, userId }, fence);
        const { values, tasks } = await graph.getState(configAt(threadId, null));
        if (tasks.some((task) => task.interrupts.length > 0)) return { outcome: 'waiting' };
        const update = await change({ values, signal });
        signal.throwIfAborted();
        if (update === null || update === undefined) return { outcome: 'unchanged' };
        return updated(threadId, () => graph.updateState(configAt(threadId, null), update, asNode));
      },
    );
    return result.outcome === 'done' ? result.value : { outcome: result.outcome };
  }

  async messages(input: {
    threadId: string;
    userId: string;
    runId: string | null;
    before: number | null;
    after: number | null;
    limit: number;
  }): Promise<{ readonly facts: readonly Fact[]; readonly hasMore: boolean } | null> {
    const { threadId, runId, before, after } = input;
    if ((await this.get(input)) === null) return null;
    const limit = Math.min(Math.max(input.limit, 1), MESSAGE_PAGE);
    // One more than asked tells whether there are more; it stands at the far end of the page.
    const page = await this.#parts.stores.log.messages({ threadId, runId, before, after, limit: limit + 1 });
    const hasMore = page.facts.length > limit;
    const facts = after === null ? page.facts.slice(-limit) : page.facts.slice(0, limit);
    return { facts, hasMore };
  }

  async facts(input: {
    threadId: string;
    userId: string;
    runId: string | null;
    afterSeq: number;
    limit: number;
  }): Promise<{ readonly facts: readonly Fact[]; readonly head: number } | null> {
    const { threadId, runId, afterSeq, limit } = input;
    if ((await this.get(input)) === null) return null;
    return this.#parts.stores.log.read({ threadId, runId, afterSeq, limit, maxBytes: FACT_PAGE_BYTES });
  }

  async #write(input: {
    threadId: string;
    userId: string;
    values: Json;
    checkpointId: string | null;
    asNode: string | null;
    fence: Fence;
  }): ReturnType<ThreadService['updateState']> {
    const { threadId, values, checkpointId, asNode, fence } = input;
    const graph = await this.#graph(input, fence);
    const fields = Object.keys(typeof values === 'object' && values !== null && !Array.isArray(values) ? values : {});
    const unknown = fields.filter((field) => !graph.stateKeys.includes(field));
    if (unknown.length > 0) {
      const known = graph.stateKeys.join(', ');
      return { outcome: 'invalid', message: `Unknown state fields: ${unknown.join(', ')}. Known ones: ${known}.` };
    }
    if (checkpointId !== null) {
      const there = await this.#parts.stores.checkpoints.load({ threadId, ns: '', checkpointId });
      if (there === null) return { outcome: 'not_found' };
    }
    return updated(threadId, () => graph.updateState(configAt(threadId, checkpointId), values, asNode ?? undefined));
  }

  /** The graph that wrote the thread last, or the first one that this server has. */
  async #graph(input: { threadId: string; userId: string }, fence: Fence | null): Promise<Graph> {
    const { stores, graphs, saverFor } = this.#parts;
    const { threadId, userId } = input;
    const [newest] = await stores.runs.list({ threadId, userId, status: null, limit: 1, offset: 0 });
    const factory = graphs.get(newest?.assistantId ?? '') ?? [...graphs.values()][0];
    if (factory === undefined) throw new ReindeerError('configuration', 'No assistant is configured on this server.');
    return factory.forState(saverFor({ threadId, fence }));
  }

  #anyAssistant(): string {
    return [...this.#parts.graphs.keys()][0] ?? '';
  }
}

async function updated(
  threadId: string,
  update: () => Promise<GraphConfig>,
): Promise<
  | { readonly outcome: 'updated'; readonly checkpoint: StateSnapshot['checkpoint'] }
  | { readonly outcome: 'invalid'; readonly message: string }
> {
  try {
    const config = await update();
    return {
      outcome: 'updated',
      checkpoint: {
        thread_id: threadId,
        checkpoint_ns: '',
        checkpoint_id: String(config.configurable.checkpoint_id ?? ''),
        checkpoint_map: null,
      },
    };
  } catch (error) {
    // The store's own faults stay faults; what the graph refuses is the caller's to correct.
    if (ReindeerError.is(error) && error.code !== 'validation_failed') throw error;
    return { outcome: 'invalid', message: error instanceof Error ? error.message : String(error) };
  }
}

function configAt(threadId: string, checkpointId: string | null): GraphConfig {
  return {
    configurable: {
      thread_id: threadId,
      checkpoint_ns: '',
      ...(checkpointId === null ? {} : { checkpoint_id: checkpointId }),
    },
  };
}
