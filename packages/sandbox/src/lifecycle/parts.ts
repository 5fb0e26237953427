import type {
  OwnershipStore,
  SandboxBackend,
  SandboxFiles,
  SandboxIdentity,
  SandboxMachine,
  Surroundings,
} from '@reindeer/protocol';
import type { ChangeSettings } from '../settings.ts';
import type { Claims } from './claims.ts';
import type { Meters } from './meters.ts';
import type { LifecycleSettings } from './settings.ts';
import type { SandboxTable } from './table.ts';
import type { TeardownLeases } from './teardown.ts';

/** The files of threads, which live longer than any container. */
export interface ThreadStorage {
  files(identity: SandboxIdentity): SandboxFiles;
  /** Makes a thread's folders ready to be mounted. */
  prepare(identity: SandboxIdentity): Promise<void>;
  remove(identity: SandboxIdentity): Promise<void>;
  close(): Promise<void>;
}

export interface LifecycleParts {
  readonly backend: SandboxBackend;
  /** Closed by the provider's `shutdown`. */
  readonly ownership: OwnershipStore;
  readonly storage: ThreadStorage;
  readonly surroundings: Surroundings;
  readonly settings?: Partial<LifecycleSettings>;
  /** Is given what changes them while the provider lives. */
  readonly onChanges?: (change: ChangeSettings<LifecycleSettings>) => void;
  /** Default: `reduceSandbox`. */
  readonly machine?: SandboxMachine;
  /** Bytes of memory that new containers could have; null = unknown. Default: this machine's. */
  readonly availableMemory?: () => Promise<number | null>;
}

/** What the paths of one provider share. */
export interface Core {
  readonly table: SandboxTable;
  readonly claims: Claims;
  readonly teardowns: TeardownLeases;
  readonly backend: SandboxBackend;
  readonly settings: LifecycleSettings;
  readonly surroundings: Surroundings;
  readonly meters: Meters;
  readonly availableMemory: () => Promise<number | null>;
}
