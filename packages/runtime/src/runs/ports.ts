import type {
  CheckpointStore,
  Fence,
  GraphFactory,
  Run,
  Stores,
  Surroundings,
  WorkspaceWatch,
} from '@reindeer/protocol';
import type { Packer } from '../saver/index.ts';
import type { RuntimeSettings } from '../settings.ts';
import type { WriteQueue } from '../writes/write-queue.ts';

/** Makes the LangGraph checkpointer of one attempt (with its fence), or for reading and editing state (without). */
export type SaverFor = (input: {
  readonly threadId: string;
  readonly fence: Fence | null;
  /** Names the node of a task for `update` facts. */
  readonly taskName?: (taskId: string) => string | undefined;
  /** Shared with the attempt's tool journal, so that a message is serialized once. */
  readonly packer?: Packer;
  /** The attempt's writes: a saver that has it answers before a write is stored. */
  readonly writes?: WriteQueue;
  /** Where its checkpoints are; default the runtime's store. */
  readonly store?: CheckpointStore;
}) => unknown;

/** Called around runs and threads; failures of those around runs are logged and change nothing. */
export interface RuntimeHooks {
  /** A run was admitted here: a good time to warm what it will need. */
  onAdmitted?(run: Run): void | Promise<void>;
  /** Exactly once per run, by the holder that acknowledged it. */
  onFinished?(run: Run): void | Promise<void>;
  /** The thread is held for its deletion: files and sandboxes go first. A failure is the caller's, and the thread stays. */
  onThreadDeleting?(thread: { readonly threadId: string; readonly userId: string }): void | Promise<void>;
  /** The thread is gone from the store. Must not throw. */
  onThreadDeleted?(thread: { readonly threadId: string; readonly userId: string }): void;
}

/** What all parts of the run manager share. */
export interface RunParts {
  readonly stores: Stores;
  readonly graphs: ReadonlyMap<string, GraphFactory>;
  readonly surroundings: Surroundings;
  readonly settings: RuntimeSettings;
  readonly saverFor: SaverFor;
  readonly hooks: RuntimeHooks;
  /** Compares the files of threads; null = nobody looks, and no run is asked what it delivered. */
  readonly workspaces: WorkspaceWatch | null;
}
