import type { OwnershipStore, SandboxLifecycle, Surroundings } from '@reindeer/protocol';
import { createLifecycleProvider } from '../lifecycle/index.ts';
import type { ThreadStorage } from '../lifecycle/parts.ts';
import type { LifecycleSettings } from '../lifecycle/settings.ts';
import { type ChangeSettings, changesOf } from '../settings.ts';
import { ContainerBackend, type ContainerBackendParts } from './backend.ts';
import { EngineClient, findEngineSocket } from './engine.ts';
import { openGround } from './ground.ts';
import {
  type ContainerSettings,
  checkContainerSettings,
  DEFAULT_CONTAINER_SETTINGS,
  LIVE_CONTAINER_SETTINGS,
} from './settings.ts';

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
  /** The host's environment: `DOCKER_HOST`, `CONTAINER_HOST`, `XDG_RUNTIME_DIR`, `HOME`, to find the engine's socket, and proxies. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Is given what changes the limits of new containers, and of commands, while the provider lives. */
  readonly onChanges?: (change: ChangeSettings<ContainerSettings>) => void;
  /** The same for how many there may be, and how long they stay. */
  readonly onLifecycleChanges?: (change: ChangeSettings<LifecycleSettings>) => void;
}

/** The parts of a provider of containers, for whoever puts a lifecycle of its own on top. */
export interface ContainerParts {
  readonly backend: ContainerBackend;
  readonly storage: ThreadStorage;
}

/**
 * Containers on Docker or Podman, one per user and thread, kept warm between turns. Resolves also while the engine is down: `report()`
 * then says so, with the remedy, and acquires fail with `sandbox_unavailable` until it answers again. Call `start()` once it may adopt
 * what an earlier process left.
 *
 * @throws ReindeerError `configuration` for settings that cannot be kept, and for a data folder that cannot be written
 */
export async function createContainerProvider(input: CreateContainerProvider): Promise<SandboxLifecycle> {
  const { ownership, surroundings, lifecycle, onLifecycleChanges } = input;
  const { backend, storage } = await openContainerBackend(input);
  return createLifecycleProvider({
    backend,
    storage,
    ownership,
    surroundings,
    ...(lifecycle === undefined ? {} : { settings: lifecycle }),
    ...(onLifecycleChanges === undefined ? {} : { onChanges: onLifecycleChanges }),
  });
}

/** The backend and the files below it. Asks the engine once, at most for a few seconds. */
export async function openContainerBackend(
  input: Omit<CreateContainerProvider, 'lifecycle'> & Pick<ContainerBackendParts, 'hostPort' | 'probeMs'>,
): Promise<ContainerParts> {
  const settings = { ...DEFAULT_CONTAINER_SETTINGS, ...input.settings };
  checkContainerSettings(settings);
  input.onChanges?.(changesOf(settings, DEFAULT_CONTAINER_SETTINGS, LIVE_CONTAINER_SETTINGS, checkContainerSettings));
  const { surroundings, ownership } = input;
  const { home, clients, secrets, folders, storage } = await openGround({ ...input, settings });
  const engine = new EngineClient(await findEngineSocket(settings.engineSocket, input.environment), surroundings.clock);
  const backend = new ContainerBackend({
    engine,
    settings,
    surroundings,
    home,
    instance: ownership.ownerId,
    secrets,
    folders,
    clients,
    ...(input.hostPort === undefined ? {} : { hostPort: input.hostPort }),
    ...(input.probeMs === undefined ? {} : { probeMs: input.probeMs }),
  });
  await backend.facts().catch((error: unknown) =>
    surroundings.logger.warn('The container engine does not answer; sandboxes can be had once it does', {
      cause: error instanceof Error ? error.message : String(error),
    }),
  );
  return { backend, storage };
}
