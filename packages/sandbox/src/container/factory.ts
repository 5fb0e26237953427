import type { OwnershipStore, SandboxLifecycle, Surroundings } from '@reindeer/protocol';
import type { LifecycleSettings } from '../lifecycle/settings.ts';
import type { ContainerSettings } from './settings.ts';

export interface CreateContainerProvider {
  /** What differs from `DEFAULT_CONTAINER_SETTINGS`. */
  readonly settings?: Partial<ContainerSettings>;
  /** What differs from `DEFAULT_LIFECYCLE_SETTINGS`. */
  readonly lifecycle?: Partial<LifecycleSettings>;
  /** Who may stop which container; closed by the provider's `shutdown`. */
  readonly ownership: OwnershipStore;
  /** The data folder; absolute, existing or not. Its threads' folders are the same as those of every other provider. */
  readonly home: string;
  readonly surroundings: Surroundings;
  /** The host's environment: `DOCKER_HOST`, `CONTAINER_HOST`, `XDG_RUNTIME_DIR`, `HOME`, to find the engine's socket. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/**
 * `createContainerProvider`: containers on Docker or Podman, one per user and thread, kept warm between turns. Resolves also while the
 * engine is down: `report()` then says so, with the remedy, and acquires fail with `sandbox_unavailable` until it answers again. Call
 * `start()` once it may adopt what an earlier process left. Rejects with `configuration` for settings that cannot be kept.
 */
export type ContainerProviderFactory = (input: CreateContainerProvider) => Promise<SandboxLifecycle>;
