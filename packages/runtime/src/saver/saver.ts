import type { RunnableConfig } from '@langchain/core/runnables';
import {
  BaseCheckpointSaver,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointPendingWrite,
  type CheckpointTuple,
  compareWritesSortKeys,
  getCheckpointId,
  maxChannelVersion,
  type PendingWrite,
  TASKS,
  WRITES_IDX_MAP,
  writesSortKey,
} from '@langchain/langgraph-checkpoint';
import {
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
import { diffFacts, EMPTY_LIST, type MessageList, type MessageLists, readList } from './lists.ts';
import { Packer } from './packer.ts';
import { factsOfWrites, isHidden, nodeOf } from './updates.ts';

export interface SaverOptions {
  readonly store: CheckpointStore;
  /** The right of the attempt that writes; null outside a run, where no facts are written. */
  readonly fence: Fence | null;
  /** The only thread of this saver. Without it the saver serves any thread, and remembers nothing between calls. */
  readonly threadId?: string;
  readonly surroundings: Pick<Surroundings, 'clock' | 'random'>;
  /** Which node a task ran, as `AttemptContext.nameTask` noted it. */
  readonly taskName?: (taskId: string) => string | undefined;
  /** Shared with the attempt's tool journal, so that a tool's message is serialized once. */
  readonly packer?: Packer;
}

/** What is remembered of a namespace: its newest checkpoint that passed through this saver. */
interface Position {
  readonly checkpointId: string;
  readonly lists: MessageLists;
  /** Value of `__pregel_tasks`: the Sends that the tasks of the next step come from. */
  readonly sends: readonly unknown[];
}

const NOWHERE: Position = { checkpointId: '', lists: new Map(), sends: [] };
/** Namespaces of finished sub-graphs are forgotten; one that is needed again is loaded. */
const MAX_POSITIONS = 64;

/**
 * LangGraph's checkpointer over a `CheckpointStore`, for one attempt of a run (D1, D3, D4).
 *
 * Each call is one transaction of the store: the fence, the checkpoint or the writes, and the facts that they bring about. A
 * stale fence makes the call throw `fenced`, which ends the graph. Between calls the saver remembers, per namespace, the
 * message lists of the newest checkpoint that it wrote or loaded: the next one is told as a difference to it, so that a step
 * costs O(change). Whatever is not remembered (another thread, a parent that was never loaded) is loaded or sent whole.
 * Graphs must run with durability `sync`: a step begins when the step before it is stored.
 */
export class ReindeerSaver extends BaseCheckpointSaver<string | number> {
  readonly packer: Packer;
  readonly #store: CheckpointStore;
  readonly #fence: Fence | null;
  readonly #threadId: string | null;
  readonly #surroundings: Pick<Surroundings, 'clock' | 'random'>;
  readonly #taskName: (taskId: string) => string | undefined;
  readonly #incremental: boolean;
  /** By namespace, in order of last use. */
  readonly #positions = new Map<string, Position>();

  constructor(options: SaverOptions) {
    super();
    this.#store = options.store;
    this.#fence = options.fence;
    this.#threadId = options.threadId ?? null;
    this.#surroundings = options.surroundings;
    this.#taskName = options.taskName ?? (() => undefined);
    this.#incremental = options.store.incremental === true;
    this.packer = options.packer ?? new Packer();
  }

  /**
   * Versions grow in text order, and the random end keeps two branches of one parent from sharing a (channel, version). A version
   * is the number of digits, the digits of a counter, the random end: short, because a checkpoint names a dozen.
   */
  override getNextVersion(current: string | number | undefined): string {
    const digits = (counterOf(current) + 1).toString(36);
    return `${digits.length.toString(36)}${digits}${randomText(this.#surroundings.random.next())}`;
  }

  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const { threadId, ns, checkpointId: parentId } = address(config);
    const mine = threadId === this.#threadId;
    // Nothing is awaited when the parent is remembered, so that writes reach the store in the order of the calls.
    const remembered = mine ? this.#remembered(ns, parentId) : undefined;
    const before = remembered ?? (mine ? await this.#recall(threadId, ns, parentId) : NOWHERE);

    const lists = new Map<string, MessageList>();
    const facts: NewFact[] = [];
    const lasting = mine && this.#incremental;
    const pack = (value: unknown) => (lasting ? this.packer.packNew(value) : this.packer.pack(value));
    const channels: CheckpointPut['channels'][number][] = [];
    const values = checkpoint.channel_values as Record<string, unknown>;
    const isElsewhere = this.#enclosing(ns);
    for (const name in values) {
      const isNew = Object.hasOwn(newVersions, name);
      const old = before.lists.get(name);
      const version = String((isNew ? newVersions[name] : checkpoint.channel_versions[name]) ?? '');
      if (!isNew && old !== undefined && old.version === version) {
        lists.set(name, old);
        continue;
      }
      const read = mine && !isHidden(name) ? readList(values[name], version, old, this.packer) : null;
      if (read !== null) {
        lists.set(name, read.list);
        if (this.#fence !== null) {
          facts.push(
            ...diffFacts({
              ns,
              checkpointId: checkpoint.id,
              before: old ?? EMPTY_LIST,
              after: read.list,
              keep: read.keep,
              isElsewhere,
            }),
          );
        }
      }
      if (!isNew) continue;
      if (lasting && read !== null && old !== undefined && read.keep > 0) {
        const tail = read.list.messages.slice(read.keep);
        channels.push({ name, version, value: pack(tail), base: { version: old.version, keep: read.keep } });
      } else channels.push({ name, version, value: pack(values[name]) });
    }
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
    const whole = (): CheckpointPut => ({
      ...input,
      channels: channels.map(({ name, version }) => ({ name, version, value: this.packer.pack(values[name]) })),
    });
    await this.#send(
      () => this.#store.put(input),
      () => this.#store.put(whole()),
    );
    if (mine) this.#remember(ns, { checkpointId: checkpoint.id, lists, sends: sendsOf(values) });
    return { configurable: { thread_id: threadId, checkpoint_ns: ns, checkpoint_id: checkpoint.id } };
  }

  override async putWrites(
    config: RunnableConfig,
    writes: PendingWrite[],
    taskId: string,
    taskPath = '',
  ): Promise<void> {
    const { threadId, ns, checkpointId } = address(config);
    if (checkpointId === null) throw missing('checkpoint_id', 'putWrites');
    const lasting = threadId === this.#threadId && this.#incremental;
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
    await this.#send(
      () => this.#store.putWrites(input),
      () => this.#store.putWrites({ ...input, writes: rows(false) }),
    );
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    // Without a thread there is nothing to find; LangGraph asks so for graphs that keep no state.
    if (text(config.configurable?.thread_id) === null) return undefined;
    const { threadId, ns, checkpointId } = address(config);
    const loaded = await this.#store.load({ threadId, ns, checkpointId });
    if (loaded === null) return undefined;
    const tuple = await this.#tuple(loaded, checkpointId === null ? undefined : config);
    if (threadId === this.#threadId) this.#remember(ns, this.#positionOf(loaded.checkpointId, tuple.checkpoint));
    return tuple;
  }

  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    const configurable = (config.configurable ?? {}) as Record<string, unknown>;
    const limit = options?.limit ?? null;
    if (limit !== null && limit <= 0) return;
    const filter: Record<string, JsonObject[string]> = {};
    for (const [key, value] of Object.entries(options?.filter ?? {})) if (value !== undefined) filter[key] = value;
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
    await this.#store.deleteThread(threadId);
  }

  /** Sends a write; when the store lacks something that was left out, sends everything. */
  async #send(
    write: () => ReturnType<CheckpointStore['put']>,
    whole: () => ReturnType<CheckpointStore['put']>,
  ): Promise<void> {
    let answer = await write();
    if (answer.outcome === 'incomplete') answer = await whole();
    if (answer.outcome === 'ok') return;
    if (answer.outcome === 'fenced') {
      throw new ReindeerError('fenced', 'This attempt lost its right to the run; another one continues it.', {
        detail: { runId: this.#fence?.runId ?? '' },
      });
    }
    throw new ReindeerError('internal', 'The store misses a message although it was sent.');
  }

  #remembered(ns: string, checkpointId: string | null): Position | undefined {
    if (checkpointId === null) return NOWHERE;
    const position = this.#positions.get(ns);
    return position?.checkpointId === checkpointId ? position : undefined;
  }

  #remember(ns: string, position: Position): void {
    this.#positions.delete(ns);
    this.#positions.set(ns, position);
    if (this.#positions.size <= MAX_POSITIONS) return;
    const oldest = [...this.#positions.keys()].find((key) => key !== '' && key !== ns);
    if (oldest !== undefined) this.#positions.delete(oldest);
  }

  async #recall(threadId: string, ns: string, checkpointId: string | null): Promise<Position> {
    const loaded = await this.#store.load({ threadId, ns, checkpointId });
    if (loaded === null) return NOWHERE;
    const { checkpoint } = await this.#tuple(loaded, undefined);
    return this.#positionOf(loaded.checkpointId, checkpoint);
  }

  #positionOf(checkpointId: string, checkpoint: Checkpoint): Position {
    const lists = new Map<string, MessageList>();
    const values = checkpoint.channel_values as Record<string, unknown>;
    for (const name in values) {
      if (isHidden(name)) continue;
      const read = readList(values[name], String(checkpoint.channel_versions[name] ?? ''), undefined, this.packer);
      if (read !== null) lists.set(name, read.list);
    }
    return { checkpointId, lists, sends: sendsOf(values) };
  }

  /** Does a message stand in an enclosing namespace? Collected on the first question only. */
  #enclosing(ns: string): (hash: string) => boolean {
    if (ns === '') return () => false;
    let hashes: Set<string> | undefined;
    return (hash) => {
      if (hashes === undefined) {
        hashes = new Set();
        for (let outer = ns; outer !== ''; ) {
          outer = outer.slice(0, Math.max(0, outer.lastIndexOf('|')));
          for (const list of this.#positions.get(outer)?.lists.values() ?? []) {
            for (const known of list.known) hashes.add(known.hash);
          }
        }
      }
      return hashes.has(hash);
    };
  }

  async #tuple(loaded: LoadedCheckpoint, config: RunnableConfig | undefined): Promise<CheckpointTuple> {
    const { threadId, ns, checkpointId, parentId } = loaded;
    const ordered = loaded.writes
      .map((row) => ({ row, key: writesSortKey(row.taskPath, row.taskId, row.index) }))
      .sort((a, b) => compareWritesSortKeys(a.key, b.key))
      .map(({ row }) => row);
    const texts = [
      loaded.checkpoint,
      loaded.metadata,
      ...loaded.channels.map(({ json }) => json),
      ...ordered.map((row) => (row.type === 'json' ? row.json : 'null')),
    ];
    const lasting = threadId === this.#threadId && this.#incremental;
    const [rest, metadata, ...values] = await this.packer.unpackAll(texts, loaded.messages, lasting);
    const checkpoint = { ...(rest as Checkpoint), channel_values: {} } as Checkpoint;
    const channelValues = checkpoint.channel_values as Record<string, unknown>;
    for (const [index, { name }] of loaded.channels.entries()) channelValues[name] = values[index];
    const pendingWrites = ordered.map((row, index): CheckpointPendingWrite => {
      const value = row.type === 'bytes' ? row.bytes : values[loaded.channels.length + index];
      return [row.taskId, row.channel, value];
    });
    if (checkpoint.v < 4 && parentId !== null) await this.#migrateSends(checkpoint, threadId, ns, parentId);
    const at = (id: string): RunnableConfig => ({
      configurable: { thread_id: threadId, checkpoint_ns: ns, checkpoint_id: id },
    });
    return {
      config: config ?? at(checkpointId),
      checkpoint,
      metadata: metadata as CheckpointMetadata,
      ...(parentId === null ? {} : { parentConfig: at(parentId) }),
      pendingWrites,
    };
  }

  /** Checkpoints of LangGraph's old formats keep their Sends among the writes of the parent. */
  async #migrateSends(checkpoint: Checkpoint, threadId: string, ns: string, parentId: string): Promise<void> {
    const parent = await this.#store.load({ threadId, ns, checkpointId: parentId });
    const tuple = parent === null ? undefined : await this.#tuple(parent, undefined);
    const sends = (tuple?.pendingWrites ?? []).filter(([, channel]) => channel === TASKS).map(([, , value]) => value);
    (checkpoint.channel_values as Record<string, unknown>)[TASKS] = sends;
    const versions = Object.values(checkpoint.channel_versions);
    (checkpoint.channel_versions as Record<string, string | number>)[TASKS] =
      versions.length > 0 ? maxChannelVersion(...versions) : this.getNextVersion(undefined);
  }
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

const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

function address(config: RunnableConfig): {
  readonly threadId: string;
  readonly ns: string;
  readonly checkpointId: string | null;
} {
  const configurable = (config.configurable ?? {}) as Record<string, unknown>;
  const threadId = text(configurable.thread_id);
  if (threadId === null) throw missing('thread_id', 'a checkpointer');
  const ns = typeof configurable.checkpoint_ns === 'string' ? configurable.checkpoint_ns : '';
  return { threadId, ns, checkpointId: text(getCheckpointId(config)) };
}

function missing(key: string, who: string): ReindeerError {
  return new ReindeerError('bad_request', `"${key}" is missing: pass it as config.configurable.${key} to use ${who}.`, {
    detail: { field: `configurable.${key}` },
  });
}

function sendsOf(values: Record<string, unknown>): readonly unknown[] {
  const sends = values[TASKS];
  return Array.isArray(sends) ? sends : [];
}

function counterOf(version: string | number | undefined): number {
  if (version === undefined) return 0;
  if (typeof version === 'number') return version;
  return Number.parseInt(version.slice(1, 1 + Number.parseInt(version.slice(0, 1), 36)), 36);
}

const RANDOM_SPACE = 36 ** 5;

function randomText(fraction: number): string {
  return Math.floor(fraction * RANDOM_SPACE)
    .toString(36)
    .padStart(5, '0');
}
