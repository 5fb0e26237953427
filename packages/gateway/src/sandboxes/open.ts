import { openPostgresOwnership } from '@reindeer/database';
import type { OwnershipStore, SandboxLifecycle, SandboxProvider, Surroundings } from '@reindeer/protocol';
import {
  type ChangeSettings,
  type ContainerSettings,
  createContainerProvider,
  createRemoteProvider,
  createSandboxProvider,
  type LifecycleSettings,
  leaseTtlMs,
  newOwnerId,
  openOwnershipStore,
  type SandboxSettings,
} from '@reindeer/sandbox';
import type { Settings } from '../config/settings.ts';
import type { Variables } from '../config/substitute.ts';
import { ownOwnership, ownSandboxes } from '../own-parts.ts';
import { containerSettings, provisionerOf, sandboxLifecycleSettings, sandboxSettings } from '../sandbox-settings.ts';

/** The provider of this process. */
export interface OpenedSandboxes {
  readonly provider: SandboxProvider;
  /** The same, where sandboxes live between turns; null where they last as long as a command. */
  readonly lifecycle: SandboxLifecycle | null;
  /** Whose name stands in the ownership store; null without one. */
  readonly ownerId: string | null;
  shutdown(): Promise<void>;
  /** Takes over new limits: throws for those that cannot be kept, and answers what lets them count. */
  prepare(settings: Settings): () => void;
}

export interface OpenSandboxes {
  readonly settings: Settings;
  readonly surroundings: Surroundings;
  readonly variables: Variables;
  /** Makes the provider of containers; default: Docker or Podman. */
  readonly containers?: typeof createContainerProvider | undefined;
}

/** How long the start waits for the first look at what an earlier process left running, in milliseconds. */
const ADOPTION_MS = 10_000;

/**
 * Opens the sandboxes that the settings ask for. With containers or pods: the ownership store first, then the provider, which then adopts what
 * an earlier process left running.
 *
 * @throws ReindeerError `configuration`
 */
export async function openSandboxes(parts: OpenSandboxes): Promise<OpenedSandboxes> {
  const { settings, surroundings, variables, containers = createContainerProvider } = parts;
  if (settings.sandbox.provider === 'own') {
    const provider = await ownSandboxes(settings, surroundings);
    return { provider, lifecycle: null, ownerId: null, shutdown: () => provider.shutdown(), prepare: () => () => {} };
  }
  if (settings.sandbox.provider !== 'container') {
    const changes = new Changes<SandboxSettings>();
    const provider = await createSandboxProvider({
      settings: sandboxSettings(settings),
      onChanges: changes.add,
      home: settings.home,
      surroundings,
      environment: variables,
    });
    return {
      provider,
      lifecycle: null,
      ownerId: null,
      shutdown: () => provider.shutdown(),
      prepare: (next) => changes.prepare(sandboxSettings(next)),
    };
  }
  const ownership = await openOwnership(settings, surroundings);
  let lifecycle: SandboxLifecycle;
  const ofContainers = new Changes<ContainerSettings>();
  const ofLifecycle = new Changes<LifecycleSettings>();
  try {
    const provisioner = provisionerOf(settings, variables);
    const common = {
      settings: containerSettings(settings),
      lifecycle: sandboxLifecycleSettings(settings),
      onChanges: ofContainers.add,
      onLifecycleChanges: ofLifecycle.add,
      ownership,
      home: settings.home,
      surroundings,
      environment: variables,
    };
    lifecycle =
      provisioner === null ? await containers(common) : await createRemoteProvider({ ...common, ...provisioner });
  } catch (error) {
    await ownership.close();
    throw error;
  }
  const { clock, logger } = surroundings;
  const over = new AbortController();
  const late = clock.sleep(ADOPTION_MS, over.signal).then(
    () => logger.warn('The sandbox engine has not answered yet; sandboxes of an earlier process are adopted later'),
    () => {},
  );
  await Promise.race([lifecycle.start(), late]);
  over.abort();
  return {
    provider: lifecycle,
    lifecycle,
    ownerId: ownership.ownerId,
    shutdown: () => lifecycle.shutdown(),
    prepare: (next) => {
      const commits = [
        ofContainers.prepare(containerSettings(next)),
        ofLifecycle.prepare(sandboxLifecycleSettings(next)),
      ];
      return () => {
        for (const commit of commits) commit();
      };
    },
  };
}

/** What changes the settings of a provider, once it is made. */
class Changes<T> {
  #change: ChangeSettings<T> | null = null;
  readonly add = (change: ChangeSettings<T>): void => {
    this.#change = change;
  };

  prepare(changed: Partial<T>): () => void {
    return this.#change?.(changed) ?? (() => {});
  }
}

/** The store of `sandbox.ownership`, under a new name of this process. @throws ReindeerError `configuration` */
async function openOwnership(settings: Settings, surroundings: Surroundings): Promise<OwnershipStore> {
  const { sandboxOwnership, postgres } = settings;
  const own = await ownOwnership(settings, surroundings);
  if (own !== null) return own;
  if (sandboxOwnership.type !== 'postgres' || postgres === null)
    return openOwnershipStore(sandboxOwnership, surroundings);
  return openPostgresOwnership({
    url: postgres.url,
    ownerId: newOwnerId(surroundings),
    keyPrefix: sandboxOwnership.keyPrefix,
    ttlMs: leaseTtlMs(sandboxOwnership),
    surroundings,
  });
}
