import type { RunnableConfig } from '@langchain/core/runnables';
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
  WRITES_IDX_MAP,
} from '@langchain/langgraph-checkpoint';
import {
  type AttemptWrite,
  type CheckpointPut,
  type CheckpointStore,
  type CheckpointWriteRow,
  type Fence,
  factKey,
  type JsonObject,
  type LoadedCheckpoint,
  type NewFact,
  ReindeerError,
  type Surroundings,
} from '@reindeer/protocol';
import type { WriteQueue } from '../writes/write-queue.ts';
import { type Address, addressOf, configOf, missing, text } from './address.ts';
import { diffFacts, EMPTY_LIST, type MessageList, type MessageLists, readList } from './lists.ts';
import { Packer } from './packer.ts';
import { NOWHERE, type Position, Positions, positionOf, sendsOf } from './positions.ts';
import { tupleOf } from './tuples.ts';
import { factsOfWrites, isHidden, nodeOf } from './updates.ts';
import { nextVersion } from './versions.ts';

type Channel = CheckpointPut['channels'][number];
type CheckpointWrite = Extract<AttemptWrite, { readonly kind: 'put' | 'putWrites' }>;

export interface SaverOptions {
  readonly store: CheckpointStore;
  /** The right of the attempt that writes; null outside a run, where no facts are written. */
  readonly fence: Fence | null;
  /**
   * The only thread of this saver. Without it a saver of a run takes the first thread that it is asked for; one outside a run
   * serves any thread, and remembers nothing between calls.
   */
  readonly threadId?: string;
  readonly surroundings: Pick<Surroundings, 'clock' | 'random'>;
  /** Which node a task ran, as `AttemptContext.nameTask` noted it. */
  readonly taskName?: (taskId: string) => string | undefined;
  /** Shared with the attempt's tool journal, so that a tool's message is serialized once. */
  readonly packer?: Packer;
  /** Takes the writes of the attempt, in order. Without it each call waits until its write is stored. */
  readonly writes?: Pick<WriteQueue, 'send' | 'drained'>;
}

/**
 * LangGraph's checkpointer over a `CheckpointStore`, for one attempt of a run (D1, D3, D4).
 *
 * Each call is one transaction of the store: the fence, the checkpoint or the writes, and the facts that they bring about. A
 * stale fence makes the call throw `fenced`, which ends the graph. Between calls the saver remembers, per namespace, the
 * message lists of the newest checkpoint that it wrote or loaded: the next one is told as a difference to it, so that a step
 * costs O(change). Whatever is not remembered (another thread, a parent that was never loaded) is loaded or sent whole.
 * Graphs run with durability `sync`, so that a failed write ends them at the next step. With `writes` a call answers once its
 * write stands in the attempt's queue: the next step begins while this one is being stored, and whatever must not begin before waits
 * for the queue. A read waits for it too, so that a graph sees all that it wrote.
 */
export class ReindeerSaver extends BaseCheckpointSaver<string | number> {
  readonly packer: Packer;
  readonly #store: CheckpointStore;
  readonly #fence: Fence | null;
  #threadId: string | null;
  readonly #surroundings: Pick<Surroundings, 'clock' | 'random'>;
  readonly #taskName: (taskId: string) => string | undefined;
  readonly #incremental: boolean;
  readonly #writes: Pick<WriteQueue, 'send' | 'drained'> | null;
  readonly #positions = new Positions();

  constructor(options: SaverOptions) {
    super();
    this.#store = options.store;
    this.#fence = options.fence;
    this.#threadId = options.threadId ?? null;
    this.#surroundings = options.surroundings;
    this.#taskName = options.taskName ?? (() => undefined);
    this.#incremental = options.store.incremental === true;
    this.packer = options.packer ?? new Packer();
    this.#writes = options.writes ?? null;
  }

  override getNextVersion(current: string | number | undefined): string {
    return nextVersion(current, this.#surroundings.random.next());
  }

  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const { threadId, ns, checkpointId: parentId } = addressOf(config);
    const mine = this.#isMine(threadId);
    // Nothing is awaited when the parent is remembered, so that writes reach the store in the order of the calls.
    const remembered = mine ? this.#positions.at(ns, parentId) : NOWHERE;
    const before = remembered ?? (await this.#recall({ threadId, ns, checkpointId: parentId }));
    const values = checkpoint.channel_values as Record<string, unknown>;
    const { lists, channels, facts } = mine
      ? this.#difference(ns, before, checkpoint, newVersions)
      : {
          lists: new Map<string, MessageList>(),
          channels: this.#wholeChannels(values, newVersions),
          facts: [] as NewFact[],
        };
    if (this.#fence !== null) facts.push(checkpointFact(ns, checkpoint.id, parentId, metadata));

    const { channel_values: _values, ...rest } = checkpoint;
    const input: CheckpointPut = {
      fence: this.#fence,
      threadId,
      ns,
      checkpointId: checkpoint.id,
      parentId,
      checkpoint: JSON.stringify(rest),
      metadata: this.packer.pack(metadata).json,
      channels,
      facts,
      now: this.#surroundings.clock.now(),
    };
    const sent = this.#send({ kind: 'put', input }, () => ({
      kind: 'put',
      input: { ...input, channels: this.#wholeChannels(withLists(values, lists), newVersions) },
    }));
    if (mine) this.#positions.set(ns, { checkpointId: checkpoint.id, lists, sends: sendsOf(values) });
    await sent;
    return configOf(threadId, ns, checkpoint.id);
  }

  /** What a checkpoint brings over its parent: values of channels, and what happened to the messages. */
  #difference(ns: string, before: Position, checkpoint: Checkpoint, newVersions: ChannelVersions) {
    const lists = new Map<string, MessageList>();
    const channels: Channel[] = [];
    const facts: NewFact[] = [];
    const pack = (value: unknown) => (this.#incremental ? this.packer.packNew(value) : this.packer.pack(value));
    const values = checkpoint.channel_values as Record<string, unknown>;
    const isElsewhere = this.#positions.enclosing(ns);
    for (const name in values) {
      const isNew = Object.hasOwn(newVersions, name);
      const old = before.lists.get(name);
      const version = String((isNew ? newVersions[name] : checkpoint.channel_versions[name]) ?? '');
      if (!isNew && old !== undefined && old.version === version) {
        lists.set(name, old);
        continue;
      }
      const read = isHidden(name) ? null : readList(values[name], version, old, this.packer);
      if (read !== null) {
        const { list: after, keep } = read;
        lists.set(name, after);
        const change = { ns, checkpointId: checkpoint.id, before: old ?? EMPTY_LIST, after, keep, isElsewhere };
        if (this.#fence !== null) facts.push(...diffFacts(change));
      }
      if (!isNew) continue;
      if (this.#incremental && read !== null && old !== undefined && read.keep > 0) {
        const tail = read.list.messages.slice(read.keep);
        channels.push({ name, version, value: pack(tail), base: { version: old.version, keep: read.keep } });
      } else channels.push({ name, version, value: pack(values[name]) });
    }
    return { lists, channels, facts };
  }

  #wholeChannels(values: Record<string, unknown>, newVersions: ChannelVersions): Channel[] {
    return Object.entries(newVersions)
      .filter(([name]) => name in values)
      .map(([name, version]) => ({ name, version: String(version), value: this.packer.pack(values[name]) }));
  }

  override async putWrites(
    config: RunnableConfig,
    writes: PendingWrite[],
    taskId: string,
    taskPath = '',
  ): Promise<void> {
    const { threadId, ns, checkpointId } = addressOf(config);
    if (checkpointId === null) throw missing('checkpoint_id', 'putWrites');
    const lasting = this.#isMine(threadId) && this.#incremental;
    const rows = (onlyNew: boolean): CheckpointWriteRow[] =>
      writes.map(([channel, value], index) => ({
        index: WRITES_IDX_MAP[channel] ?? index,
        channel,
        ...(value instanceof Uint8Array
          ? { type: 'bytes' as const, value }
          : { type: 'json' as const, value: onlyNew ? this.packer.packNew(value) : this.packer.pack(value) }),
      }));
    let facts: NewFact[] = [];
    const fence = this.#fence;
    const packed = rows(lasting);
    if (fence !== null) {
      const node = nodeOf(taskId, taskPath, this.#taskName, this.#positions.get(ns)?.sends ?? []);
      facts = factsOfWrites({ fence, ns, checkpointId, taskId, taskPath, node, writes, packer: this.packer });
    }
    const input = {
      fence,
      threadId,
      ns,
      checkpointId,
      taskId,
      taskPath,
      // Interrupts, errors and answers take the place of earlier ones; what a task returned never changes.
      replace: writes.every(([channel]) => channel in WRITES_IDX_MAP),
      writes: packed,
      facts,
      now: this.#surroundings.clock.now(),
    };
    await this.#send({ kind: 'putWrites', input }, () => ({
      kind: 'putWrites',
      input: { ...input, writes: rows(false) },
    }));
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    // Without a thread there is nothing to find; LangGraph asks so for graphs that keep no state.
    if (text(config.configurable?.thread_id) === null) return undefined;
    const { threadId, ns, checkpointId } = addressOf(config);
    const mine = this.#isMine(threadId);
    await this.#writes?.drained();
    const loaded = await this.#store.load({ threadId, ns, checkpointId });
    if (loaded === null) return undefined;
    const tuple = await this.#tuple(loaded, checkpointId === null ? undefined : config);
    if (mine) this.#positions.set(ns, positionOf(loaded.checkpointId, tuple.checkpoint, this.packer));
    return tuple;
  }

  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    const configurable = (config.configurable ?? {}) as Record<string, unknown>;
    const limit = options?.limit ?? null;
    if (limit !== null && limit <= 0) return;
    const filter: Record<string, JsonObject[string]> = {};
    for (const [key, value] of Object.entries(options?.filter ?? {})) if (value !== undefined) filter[key] = value;
    await this.#writes?.drained();
    const found = await this.#store.list({
      threadId: text(configurable.thread_id),
      ns: typeof configurable.checkpoint_ns === 'string' ? configurable.checkpoint_ns : null,
      checkpointId: text(configurable.checkpoint_id),
      before: text(options?.before?.configurable?.checkpoint_id),
      limit,
      filter,
    });
    for (const loaded of found) yield await this.#tuple(loaded, undefined);
  }

  override async deleteThread(threadId: string): Promise<void> {
    this.#positions.clear();
    await this.#writes?.drained();
    await this.#store.deleteThread(threadId);
  }

  /** Sends a write; when the store lacks something that was left out, sends everything. */
  async #send(write: CheckpointWrite, whole: () => CheckpointWrite): Promise<void> {
    if (this.#writes !== null) return this.#writes.send(write, whole);
    let answer = await this.#write(write);
    if (answer.outcome === 'incomplete') answer = await this.#write(whole());
    if (answer.outcome === 'ok') return;
    if (answer.outcome === 'fenced') {
      throw new ReindeerError('fenced', 'This attempt lost its right to the run; another one continues it.', {
        detail: { runId: this.#fence?.runId ?? '' },
      });
    }
    throw new ReindeerError('internal', 'The store misses a message although it was sent.');
  }

  #write(write: CheckpointWrite): ReturnType<CheckpointStore['put']> {
    return write.kind === 'put' ? this.#store.put(write.input) : this.#store.putWrites(write.input);
  }

  #isMine(threadId: string): boolean {
    // A saver of a run without a thread belongs to the first that it is asked for.
    if (this.#threadId === null && this.#fence !== null) this.#threadId = threadId;
    return threadId === this.#threadId;
  }

  async #recall({ threadId, ns, checkpointId }: Address): Promise<Position> {
    await this.#writes?.drained();
    const loaded = await this.#store.load({ threadId, ns, checkpointId });
    if (loaded === null) return NOWHERE;
    const { checkpoint } = await this.#tuple(loaded, undefined);
    return positionOf(loaded.checkpointId, checkpoint, this.packer);
  }

  #tuple(loaded: LoadedCheckpoint, config: RunnableConfig | undefined): Promise<CheckpointTuple> {
    return tupleOf(loaded, config, {
      store: this.#store,
      packer: this.packer,
      areStored: this.#incremental && loaded.threadId === this.#threadId,
      nextVersion: () => this.getNextVersion(undefined),
    });
  }
}

/** The values as they were when the lists were read: a reducer may change its array in place meanwhile. */
function withLists(values: Record<string, unknown>, lists: MessageLists): Record<string, unknown> {
  const copy = { ...values };
  for (const [name, { messages }] of lists) copy[name] = messages;
  return copy;
}

function checkpointFact(
  ns: string,
  checkpointId: string,
  parentId: string | null,
  metadata: CheckpointMetadata,
): NewFact {
  return {
    key: factKey.checkpoint(ns, checkpointId),
    body: {
      kind: 'checkpoint',
      ns,
      checkpointId,
      parentId,
      source: String(metadata.source),
      step: Number(metadata.step),
    },
  };
}
