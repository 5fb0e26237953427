import { ReindeerError, type SandboxLifecycle, type SandboxProvider, type ShutdownOwnership } from '@reindeer/protocol';
import {
  DEFAULT_LIFECYCLE_SETTINGS,
  type ExitProcess,
  ProviderHolder,
  SharedLeases,
  stopWithProcess,
} from '@reindeer/sandbox';
import type { Settings } from '../config/settings.ts';
import type { Lifecycle } from '../life/lifecycle.ts';
import { sandboxesStep } from '../life/sandbox-steps.ts';
import { type OpenedSandboxes, type OpenSandboxes, openSandboxes } from './open.ts';
import { Prewarming } from './prewarm.ts';

/** What the other parts need of the sandboxes. */
export interface StartedSandboxes {
  readonly provider: SandboxProvider;
  /** The same, where sandboxes live between turns. */
  readonly lifecycle: SandboxLifecycle | null;
  /** This instance's name in the ownership store. */
  readonly ownerId: string | null;
  /** One sandbox for all who work for a thread. */
  readonly leases: SharedLeases;
  /** null where a sandbox takes no time to make, or the operator does not want it. */
  readonly prewarming: Prewarming | null;
  /** Takes over new limits: throws for those that cannot be kept, and answers what lets them count. */
  prepare(settings: Settings): () => void;
}

/** The process whose signals stop the sandboxes, unless its host has declared that it does so itself. */
export interface Exit {
  readonly process: ExitProcess;
  readonly ownership: ShutdownOwnership;
}

/** Longest time that the stop of all sandboxes may take, in milliseconds: engines can be slow, processes are not. */
export const sandboxesBoundMs = ({ sandbox }: Settings): number =>
  sandbox.provider === 'container' ? 120_000 : 20_000;

/**
 * Starts the sandboxes as a part of the lifecycle, which stops them.
 *
 * @param options.begin what has to be there before; its failure is the failure of this part
 * @param options.end what has to be there before this part counts as started; its failure as well
 * @throws ReindeerError `configuration`
 */
export async function startSandboxes(
  life: Lifecycle,
  options: OpenSandboxes & { readonly exit?: Exit; readonly begin?: Promise<void>; readonly end?: Promise<void> },
): Promise<StartedSandboxes> {
  const { settings, surroundings, exit } = options;
  const { logger } = surroundings;
  const holder = new ProviderHolder<OpenedSandboxes>(() => openSandboxes(options), logger);
  let forgetExit = (): void => {};
  const step = sandboxesStep(holder, sandboxesBoundMs(settings), async () => {
    await options.begin;
    const { lifecycle } = await holder.get();
    if (exit !== undefined && lifecycle !== null)
      forgetExit = stopWithProcess({ ...exit, logger, shutdown: () => holder.shutdown() });
    await options.end;
  });
  await life.start({
    ...step,
    stop: async () => {
      await step.stop();
      forgetExit();
    },
  });
  const opened = holder.current;
  if (opened === null) throw new ReindeerError('internal', 'The sandboxes are missing after their start.');
  const { provider, lifecycle, ownerId } = opened;
  const leases = new SharedLeases(provider, logger);
  let { sandbox } = settings;
  const { prewarm = true } = sandbox;
  const replicas = () => sandbox.replicas ?? DEFAULT_LIFECYCLE_SETTINGS.replicas;
  const prewarming = lifecycle === null || !prewarm ? null : new Prewarming({ lifecycle, leases, replicas, logger });
  return {
    provider,
    lifecycle,
    ownerId,
    leases,
    prewarming,
    prepare: (next) => {
      const commit = opened.prepare(next);
      return () => {
        commit();
        ({ sandbox } = next);
      };
    },
  };
}
