import { type OwnershipStore, ReindeerError, type SandboxLifecycle, type Surroundings } from '@reindeer/protocol';
import { openGround } from '../container/ground.ts';
import {
  type ContainerSettings,
  checkContainerSettings,
  DEFAULT_CONTAINER_SETTINGS,
  LIVE_CONTAINER_SETTINGS,
} from '../container/settings.ts';
import { createLifecycleProvider } from '../lifecycle/index.ts';
import type { ThreadStorage } from '../lifecycle/parts.ts';
import type { LifecycleSettings } from '../lifecycle/settings.ts';
import { type ChangeSettings, changesOf } from '../settings.ts';
import { RemoteBackend } from './backend.ts';
import { ProvisionerClient } from './client.ts';

export interface CreateRemoteProvider {
  /** `sandbox.provisioner_url`. */
  readonly url: string;
  /** `sandbox.provisioner_api_key`. */
  readonly apiKey: string;
  /**
   * What differs from `DEFAULT_CONTAINER_SETTINGS`; what a pod may use, the provisioner says. `threadDataMounts` is false unless it is
   * asked for: a provisioner's nodes seldom have the data folder.
   */
  readonly settings?: Partial<ContainerSettings>;
  readonly lifecycle?: Partial<LifecycleSettings>;
  /** Who may stop which sandbox; closed by the provider's `shutdown`. */
  readonly ownership: OwnershipStore;
  /** The data folder; absolute, existing or not. */
  readonly home: string;
  readonly surroundings: Surroundings;
  /** The host's environment: proxies. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Is given what changes the limits of commands while the provider lives. */
  readonly onChanges?: (change: ChangeSettings<ContainerSettings>) => void;
  /** The same for how many sandboxes there may be, and how long they stay. */
  readonly onLifecycleChanges?: (change: ChangeSettings<LifecycleSettings>) => void;
}

/**
 * Sandboxes of a provisioner, one per user and thread, kept warm between turns. Resolves also while the provisioner is down, as with
 * containers.
 *
 * @throws ReindeerError `configuration` for an address or a key that cannot be used, and for a data folder that cannot be written
 */
export async function createRemoteProvider(input: CreateRemoteProvider): Promise<SandboxLifecycle> {
  const { backend, storage } = await openRemoteBackend(input);
  const { ownership, surroundings, lifecycle, onLifecycleChanges } = input;
  return createLifecycleProvider({
    backend,
    storage,
    ownership,
    surroundings,
    // The memory of this machine says nothing about that of the nodes.
    availableMemory: async () => null,
    ...(lifecycle === undefined ? {} : { settings: lifecycle }),
    ...(onLifecycleChanges === undefined ? {} : { onChanges: onLifecycleChanges }),
  });
}

/** The backend and the files below it. Asks the provisioner once, at most for a few seconds. */
export async function openRemoteBackend(
  input: Omit<CreateRemoteProvider, 'lifecycle' | 'ownership'>,
): Promise<{ readonly backend: RemoteBackend; readonly storage: ThreadStorage }> {
  const { surroundings, environment } = input;
  const settings = { ...DEFAULT_CONTAINER_SETTINGS, threadDataMounts: false, ...input.settings };
  checkContainerSettings(settings);
  input.onChanges?.(changesOf(settings, DEFAULT_CONTAINER_SETTINGS, LIVE_CONTAINER_SETTINGS, checkContainerSettings));
  const url = provisionerUrl(input.url);
  if (!/^[\x21-\x7e]+$/.test(input.apiKey))
    throw new ReindeerError(
      'configuration',
      'sandbox.provisioner_api_key must be the key of the provisioner (its PROVISIONER_API_KEY), without blanks. It lets nobody in without one.',
    );
  const ground = await openGround({ home: input.home, settings, surroundings, environment });
  const backend = new RemoteBackend({
    provisioner: new ProvisionerClient(url, input.apiKey, surroundings.clock, environment),
    ground,
    surroundings,
    settings,
  });
  await backend.facts().catch((error: unknown) =>
    surroundings.logger.warn('The provisioner does not answer; sandboxes can be had once it does', {
      cause: error instanceof Error ? error.message : String(error),
    }),
  );
  return { backend, storage: ground.storage };
}

function provisionerUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === '') return url;
  throw new ReindeerError(
    'configuration',
    'sandbox.provisioner_url must be an http or https address without a user, as in http://reindeer-provisioner:8002.',
  );
}
