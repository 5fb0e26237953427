import type { RunnableConfig } from '@langchain/core/runnables';
import {
  BaseCheckpointSaver,
  type Checkpoint,
  type CheckpointMetadata,
  type CheckpointTuple,
} from '@langchain/langgraph';

type ChannelVersions = Parameters<BaseCheckpointSaver['put']>[3];
type CheckpointListOptions = Parameters<BaseCheckpointSaver['list']>[1];
type PendingWrites = Parameters<BaseCheckpointSaver['putWrites']>[1];

/**
 * A saver's view for a graph of its own within the thread: what that graph takes for its root stands under a namespace. So a sub-agent
 * is checkpointed by the run's saver, under its fence, and cannot reach the state of the agent that asked for it (SA-09).
 */
export class NamespacedSaver extends BaseCheckpointSaver<string | number> {
  readonly #inner: BaseCheckpointSaver<string | number>;
  readonly #namespace: string;

  constructor(inner: BaseCheckpointSaver<string | number>, namespace: string) {
    super();
    this.#inner = inner;
    this.#namespace = namespace;
  }

  override getNextVersion(current: string | number | undefined): string | number {
    return this.#inner.getNextVersion(current);
  }

  override async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const tuple = await this.#inner.getTuple(this.#inside(config));
    return tuple === undefined ? undefined : this.#outsideTuple(tuple);
  }

  override async *list(config: RunnableConfig, options?: CheckpointListOptions): AsyncGenerator<CheckpointTuple> {
    for await (const tuple of this.#inner.list(this.#inside(config), options)) yield this.#outsideTuple(tuple);
  }

  override async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    return this.#outside(await this.#inner.put(this.#inside(config), checkpoint, metadata, newVersions));
  }

  override async putWrites(
    config: RunnableConfig,
    writes: PendingWrites,
    taskId: string,
    taskPath?: string,
  ): Promise<void> {
    // LangGraph passes the path to savers that take it; the type of the base class does not know it.
    const inner = this.#inner as unknown as {
      putWrites(config: RunnableConfig, writes: PendingWrites, taskId: string, taskPath?: string): Promise<void>;
    };
    await inner.putWrites(this.#inside(config), writes, taskId, taskPath);
  }

  override deleteThread(): Promise<void> {
    return Promise.reject(new Error('A sub-agent cannot delete its thread.'));
  }

  #inside(config: RunnableConfig): RunnableConfig {
    const inner = namespaceOf(config);
    return withNamespace(config, inner === '' ? this.#namespace : `${this.#namespace}|${inner}`);
  }

  #outside(config: RunnableConfig): RunnableConfig {
    const whole = namespaceOf(config);
    return withNamespace(config, whole === this.#namespace ? '' : whole.slice(this.#namespace.length + 1));
  }

  #outsideTuple(tuple: CheckpointTuple): CheckpointTuple {
    const { config, parentConfig } = tuple;
    return {
      ...tuple,
      config: this.#outside(config),
      ...(parentConfig === undefined ? {} : { parentConfig: this.#outside(parentConfig) }),
    };
  }
}

const namespaceOf = (config: RunnableConfig): string => {
  const namespace: unknown = config.configurable?.checkpoint_ns;
  return typeof namespace === 'string' ? namespace : '';
};

const withNamespace = (config: RunnableConfig, namespace: string): RunnableConfig => ({
  ...config,
  configurable: { ...config.configurable, checkpoint_ns: namespace },
});
