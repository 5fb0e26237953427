import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Run, RunStatus, SandboxStats } from '@reindeer/protocol';
import type { RuntimeCounters, RuntimeStats } from '@reindeer/runtime';
import type { Labels, Metric, Sample } from './text.ts';

/** Nanoseconds. */
const NANO = 1e9;
const QUANTILES = [50, 90, 99, 100] as const;

/** Counts runs as the runtime's hooks tell of them. One number per state. */
export class RunCounts {
  admitted = 0;
  readonly #finished = new Map<RunStatus, number>();

  finished({ status }: Pick<Run, 'status'>): void {
    this.#finished.set(status, (this.#finished.get(status) ?? 0) + 1);
  }

  get byStatus(): ReadonlyMap<RunStatus, number> {
    return this.#finished;
  }
}

/**
 * Measures how late the event loop is. *off* → `start` → *on* → `stop` → *off*; it keeps no process alive. Each reading begins a new
 * span, so that an old stall does not stand in the figures for ever.
 */
export class LoopDelay {
  readonly #monitor = monitorEventLoopDelay({ resolution: 10 });

  start(): void {
    this.#monitor.enable();
  }

  stop(): void {
    this.#monitor.disable();
  }

  /** Seconds by percentile since the last reading; 100 = the longest. */
  read(): ReadonlyMap<number, number> {
    const read = new Map(QUANTILES.map((quantile) => [quantile, this.#monitor.percentile(quantile) / NANO]));
    this.#monitor.reset();
    return read;
  }
}

export interface Sources {
  readonly runtime: { stats(): RuntimeStats; counters(): RuntimeCounters };
  readonly runs: RunCounts;
  readonly loop: LoopDelay;
  readonly uptimeSeconds: () => number;
  /** null where sandboxes last as long as a command. */
  readonly sandboxes: { stats(): SandboxStats } | null;
}

/** Everything that is measured, as of now. */
export function gather({ runtime, runs, loop, uptimeSeconds, sandboxes }: Sources): readonly Metric[] {
  const { held, leases } = runtime.stats();
  const { readers, renewals, recovered } = runtime.counters();
  return [
    gauge('reindeer_uptime_seconds', 'Time since the start of the server.', uptimeSeconds()),
    gauge('reindeer_memory_bytes', 'Resident memory of the server.', process.memoryUsage.rss()),
    {
      name: 'reindeer_loop_delay_seconds',
      help: 'How late the event loop was since the last reading; quantile 1 is the longest.',
      type: 'gauge',
      samples: [...loop.read()].map(([quantile, value]) => ({ labels: { quantile: String(quantile / 100) }, value })),
    },
    gauge('reindeer_runs_active', 'Runs that this instance works on or holds.', held),
    {
      name: 'reindeer_runs_total',
      help: 'Runs that were admitted here, and how those that ended here have ended.',
      type: 'counter',
      samples: [
        { labels: { state: 'admitted' }, value: runs.admitted },
        ...[...runs.byStatus].map(([state, value]) => ({ labels: { state }, value })),
      ],
    },
    counter('reindeer_runs_recovered_total', 'Runs of dead processes that this instance has taken over.', recovered),
    gauge('reindeer_leases', 'Leases of runs that this instance keeps.', leases),
    counters('reindeer_lease_renewals_total', 'What became of renewals of leases.', 'outcome', renewals),
    gauge('reindeer_stream_readers', 'Readers of streams.', readers),
    ...(sandboxes === null ? [] : ofSandboxes(sandboxes.stats())),
  ];
}

function ofSandboxes(stats: SandboxStats): readonly Metric[] {
  const { active, warm, starting, stopped, failedStops } = stats;
  return [
    {
      name: 'reindeer_sandboxes',
      help: 'Sandboxes that this instance keeps or starts.',
      type: 'gauge',
      samples: byLabel('state', { active, warm, starting }),
    },
    {
      name: 'reindeer_sandbox_acquire_seconds',
      help: 'Time until a sandbox was handed out, by the way in which it was found.',
      type: 'histogram',
      series: Object.entries(stats.acquires).map(([path, histogram]) => ({ labels: { path }, histogram })),
    },
    counter('reindeer_sandbox_acquire_failures_total', 'Acquires that gave no sandbox.', stats.failedAcquires),
    counter('reindeer_sandbox_adoptions_total', 'Running sandboxes without an owner that were adopted.', stats.adopted),
    counter(
      'reindeer_sandbox_refused_claims_total',
      'Claims that the ownership store refused or could not answer.',
      stats.refusedClaims,
    ),
    counters('reindeer_sandbox_stops_total', 'Stops of sandboxes.', 'outcome', { stopped, failed: failedStops }),
    counter('reindeer_sandbox_moves_total', 'Sandboxes that another instance has taken over.', stats.forgotten),
  ];
}

const gauge = (name: string, help: string, value: number): Metric => ({
  name,
  help,
  type: 'gauge',
  samples: [{ value }],
});
const counter = (name: string, help: string, value: number): Metric => ({
  name,
  help,
  type: 'counter',
  samples: [{ value }],
});
const counters = (name: string, help: string, label: string, values: Readonly<Record<string, number>>): Metric => ({
  name,
  help,
  type: 'counter',
  samples: byLabel(label, values),
});

function byLabel(label: string, values: Readonly<Record<string, number>>): readonly Sample[] {
  return Object.entries(values).map(([name, value]) => ({ labels: { [label]: name } satisfies Labels, value }));
}
