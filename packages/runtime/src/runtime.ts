import type {
  GraphFactory,
  Run,
  RunService,
  Stores,
  Surroundings,
  ThreadService,
  TokenRelay,
  WorkspaceWatch,
} from '@reindeer/protocol';
import { settledWithin } from './common/waiting.ts';
import { type LeaseCounts, LeaseKeeper } from './leases/keeper.ts';
import { Recovery } from './leases/recovery.ts';
import { Admissions } from './runs/admission.ts';
import { RunManager } from './runs/manager.ts';
import type { RunParts, RuntimeHooks, SaverFor } from './runs/ports.ts';
import { RunRegistry } from './runs/registry.ts';
import { Reservations } from './runs/reservation.ts';
import { LocalRunService } from './runs/service.ts';
import { ReindeerSaver } from './saver/index.ts';
import { DEFAULT_SETTINGS, type RuntimeSettings } from './settings.ts';
import { RunStreams } from './stream/streams.ts';
import { ValuesCache } from './stream/values-text.ts';
import { LocalThreadService } from './threads/service.ts';
import { apiState, toStateSnapshot } from './threads/snapshot.ts';

export interface RuntimeParts {
  readonly stores: Stores;
  /** By assistant id; the first one reads and edits threads that no run has touched yet. */
  readonly graphs: ReadonlyMap<string, GraphFactory>;
  readonly surroundings: Surroundings;
  /** Default: our saver over `stores.checkpoints`. */
  readonly saverFor?: SaverFor;
  readonly settings?: Partial<RuntimeSettings>;
  readonly hooks?: RuntimeHooks;
  /** Compares the files of threads around a run; absent = nobody looks. */
  readonly workspaces?: WorkspaceWatch;
  /** Tokens from and to other instances. Without it readers get whole messages of runs that are worked elsewhere. */
  readonly relay?: TokenRelay;
}

export interface RuntimeStats {
  readonly held: number;
  readonly leases: number;
  readonly streams: number;
}

/** For an operator's view; counted since the start, `readers` as of now. */
export interface RuntimeCounters {
  /** Readers of streams. */
  readonly readers: number;
  readonly renewals: Readonly<LeaseCounts>;
  /** Runs of dead processes that this one has continued or ended, since its start. */
  readonly recovered: number;
}

export interface StopReport {
  /** Runs that had not ended when the time was up; their leases run out, and recovery continues them. */
  readonly unfinished: readonly {
    readonly runId: string;
    readonly threadId: string;
    readonly effects: readonly string[];
  }[];
}

/**
 * The runtime of one process. States: made → started → stopping → stopped. Nothing runs before `start`, nothing is alive
 * after `stop` (GW-26).
 */
/** What of the settings may change while the process runs: all that no lease, no poll and no peer depends on. */
const LIVE_SETTINGS = [
  'crashPolicy',
  'maxActiveRuns',
  'maxQueuedRuns',
  'maxRecursionLimit',
  'runTimeoutMs',
  'requirePresented',
] as const;
export type LiveRuntimeSettings = Pick<RuntimeSettings, (typeof LIVE_SETTINGS)[number]>;

export interface Runtime {
  readonly runs: RunService;
  readonly threads: ThreadService;
  /** Takes over the runs of an earlier process of this instance, then begins to beat and to sweep (GW-06). Once. */
  start(): Promise<{ readonly recovered: number }>;
  /**
   * Refuses new work at once, waits `drainMs` for runs to end by themselves, interrupts the rest, waits for them until `hardMs` after
   * the call, ends streams. Calls share one execution (GW-15); never rejects because of a run.
   */
  stop(bounds?: { readonly drainMs?: number; readonly hardMs?: number }): Promise<StopReport>;
  /** New limits, for runs that begin from now on; those at work end under theirs. */
  configure(settings: Partial<LiveRuntimeSettings>): void;
  stats(): RuntimeStats;
  counters(): RuntimeCounters;
}

/** How long readers have to hear the end of runs when the process stops (5.4). */
const STREAMS_MS = 1_000;

export function createRuntime(parts: RuntimeParts): Runtime {
  const { stores, graphs, surroundings } = parts;
  const settings: RuntimeSettings = { ...DEFAULT_SETTINGS, ...parts.settings };
  const saverFor: SaverFor =
    parts.saverFor ?? ((input) => new ReindeerSaver({ store: stores.checkpoints, surroundings, ...input }));
  /** Nobody is told of runs any more once the drain is over: what would hear of them is being stopped next (GW-18). */
  let observed = true;
  const base: RunParts = {
    stores,
    graphs,
    surroundings,
    settings,
    saverFor,
    hooks: {
      ...parts.hooks,
      onAdmitted: (run) => (observed ? parts.hooks?.onAdmitted?.(run) : undefined),
      onFinished: (run) => (observed ? parts.hooks?.onFinished?.(run) : undefined),
    },
    workspaces: parts.workspaces ?? null,
  };

  const registry = new RunRegistry();
  const keeper = new LeaseKeeper({ runs: stores.runs, surroundings, settings });
  const streams = new RunStreams({
    log: stores.log,
    runs: stores.runs,
    surroundings,
    settings,
    relay: parts.relay ?? null,
  });
  let recoveredRuns = 0;
  const recovery: Recovery = new Recovery({
    runs: stores.runs,
    surroundings,
    settings,
    held: () => keeper.runIds,
    onClaimed: (claimed) => {
      recoveredRuns += 1;
      return manager.takeOver(claimed);
    },
    afterSweep: () => manager.queues.sweep(),
  });
  const admissions = new Admissions(base);
  const reservations = new Reservations({
    ...base,
    admissions,
    keeper,
    onThreadFree: (threadId) => void manager.queues.advance(threadId),
  });
  const manager: RunManager = new RunManager({
    ...base,
    registry,
    keeper,
    streams,
    admissions,
    sweep: () => recovery.sweep(),
  });

  const factoryOf = (run: Run) => graphs.get(run.assistantId) ?? null;
  const stateOf = async (run: Run, checkpointId: string): Promise<string | null> => {
    const graph = await factoryOf(run)?.forState(saverFor({ threadId: run.threadId, fence: null }));
    if (graph === undefined) return null;
    const configurable = { thread_id: run.threadId, checkpoint_ns: '', checkpoint_id: checkpointId };
    const state = apiState(toStateSnapshot(await graph.getState({ configurable })));
    return JSON.stringify({ config: { configurable }, ...state });
  };
  const values = new ValuesCache({
    checkpoints: stores.checkpoints,
    limit: settings.valuesCacheBytes,
    keysOf: async (factory, threadId) => (await factory.forState(saverFor({ threadId, fence: null }))).stateKeys,
  });
  let epoch: Promise<string> | null = null;
  const epochOf = () => {
    // It never changes while the store is open; only a failed question is asked again.
    epoch ??= stores.log.epoch().catch((error: unknown) => {
      epoch = null;
      throw error;
    });
    return epoch;
  };
  const reading = {
    epoch: epochOf,
    log: stores.log,
    surroundings,
    streams,
    values,
    stateOf,
    factoryOf,
  };

  let started: Promise<{ readonly recovered: number }> | null = null;
  let stopped: Promise<StopReport> | null = null;

  const start = async () => {
    const recovered = await recovery.atStart();
    keeper.start();
    recovery.start();
    // What was queued before the start, on threads that nothing has any more.
    void manager.queues.sweep();
    return { recovered };
  };

  const stop = async ({
    drainMs = 5_000,
    hardMs = 10_000,
  }: {
    drainMs?: number;
    hardMs?: number;
  }): Promise<StopReport> => {
    const { clock, logger } = surroundings;
    const deadline = clock.monotonic() + hardMs;
    const left = () => Math.max(deadline - clock.monotonic(), 0);
    admissions.refuse();
    await settledWithin(clock, recovery.stop(), Math.min(1_000, left()));
    await settledWithin(clock, admissions.quiet(), Math.min(drainMs, left()));
    const allSettled = () => Promise.all(registry.all().map((local) => local.settled));
    if (!(await settledWithin(clock, allSettled(), Math.min(drainMs, left())))) {
      for (const local of registry.all()) local.stop({ kind: 'shutdown' });
      await settledWithin(clock, allSettled(), left());
    }
    const unfinished = registry.all().map(({ run, effects }) => ({
      runId: run.runId,
      threadId: run.threadId,
      effects: effects.live(),
    }));
    for (const run of unfinished) logger.error('a run had not ended when the server stopped', run);
    observed = false;
    // Whoever still works here must not write after us: the lease is no longer kept.
    for (const local of registry.all()) {
      local.stop({ kind: 'fenced' });
      local.effects.abandon();
    }
    await streams.drain(Math.min(STREAMS_MS, left()));
    streams.stop();
    await keeper.stop();
    return { unfinished };
  };

  return {
    runs: new LocalRunService({ base, manager, registry, reading }),
    threads: new LocalThreadService({ base, reservations, onDeleted: (threadId) => values.purge(threadId) }),
    start: () => {
      started ??= start();
      return started;
    },
    stop: (bounds = {}) => {
      stopped ??= stop(bounds);
      return stopped;
    },
    configure: (changed) => {
      for (const key of LIVE_SETTINGS)
        if (Object.hasOwn(changed, key)) Object.assign(settings, { [key]: changed[key] });
    },
    stats: () => ({ held: registry.size, leases: keeper.size, streams: streams.size }),
    counters: () => ({
      readers: streams.readers,
      renewals: { ...keeper.counts },
      recovered: recoveredRuns,
    }),
  };
}
