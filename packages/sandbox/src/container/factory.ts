import { mkdir, realpath } from 'node:fs/promises';
import {
  type IsolationReport,
  type OwnershipStore,
  ReindeerError,
  type SandboxFiles,
  type SandboxIdentity,
  type SandboxLifecycle,
  type Surroundings,
} from '@reindeer/protocol';
import type { Executor } from '../executor.ts';
import { Matcher } from '../files/matcher.ts';
import { Staging } from '../files/staging.ts';
import { ThreadFiles } from '../files/thread-files.ts';
import { toolMappings } from '../files/virtual-path.ts';
import { makeThreadFolders, threadPaths } from '../folders.ts';
import { createLifecycleProvider } from '../lifecycle/index.ts';
import type { ThreadStorage } from '../lifecycle/parts.ts';
import type { LifecycleSettings } from '../lifecycle/settings.ts';
import { storageOf } from '../lifecycle/storage.ts';
import { PipePool } from '../process/pipes.ts';
import { ThreadSandboxProvider, trashFolder } from '../provider.ts';
import { type ChangeSettings, changesOf, DEFAULT_SANDBOX_SETTINGS } from '../settings.ts';
import { ContainerBackend, type ContainerBackendParts } from './backend.ts';
import { ContainerClients } from './clients.ts';
import { EngineClient, findEngineSocket } from './engine.ts';
import { ownerOf } from './identity.ts';
import { RunFolders } from './run-folders.ts';
import { ContainerSecrets } from './secrets.ts';
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
  /** The host's environment: `DOCKER_HOST`, `CONTAINER_HOST`, `XDG_RUNTIME_DIR`, `HOME`, to find the engine's socket. */
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
  const home = await madeHome(input.home);
  const engine = new EngineClient(await findEngineSocket(settings.engineSocket, input.environment), surroundings.clock);
  const secrets = await ContainerSecrets.open(`${home}/sandbox/container-key`);
  const folders = new RunFolders(home);
  const matcher = new Matcher();
  const storage = threadStorage(home, surroundings, matcher);
  const files = (identity: SandboxIdentity): SandboxFiles => {
    const paths = threadPaths(home, identity.userId, identity.threadId);
    return new ThreadFiles({
      // As tools see them: what a person uploaded is not changed by a model.
      mappings: toolMappings(paths),
      staging: new Staging(paths.staging, surroundings.random),
      matcher,
      clock: surroundings.clock,
      prepare: () => storage.prepare(identity),
    });
  };
  const backend = new ContainerBackend({
    engine,
    settings,
    surroundings,
    home,
    instance: ownership.ownerId,
    secrets,
    folders,
    clients: new ContainerClients({ settings, surroundings, home, secrets, folders, files }),
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

async function madeHome(home: string): Promise<string> {
  try {
    await mkdir(trashFolder(home), { recursive: true, mode: 0o700 });
    return await realpath(home);
  } catch (cause) {
    throw new ReindeerError(
      'configuration',
      `The data folder ${home} cannot be written; check its owner and permissions.`,
      { cause },
    );
  }
}

const FILES_ONLY: IsolationReport = { provider: 'files-only', canExecute: false, network: 'none', limits: [] };

/** The folders of threads, owned by whoever runs in their containers. */
function threadStorage(home: string, surroundings: Surroundings, matcher: Matcher): ThreadStorage {
  const executor: Executor = {
    report: FILES_ONLY,
    pathStyle: 'virtual',
    prepare: async (paths, key) => {
      const { uid } = await ownerOf(home, paths, key);
      await makeThreadFolders(paths, process.getuid?.() === 0 ? uid : null);
    },
    execute: null,
    close: async () => {},
  };
  const pipes = new PipePool(`${home}/sandbox/pipes-${surroundings.random.uuid()}`);
  return storageOf(
    new ThreadSandboxProvider({ executor, settings: DEFAULT_SANDBOX_SETTINGS, home, surroundings, matcher, pipes }),
  );
}
