import { DEFAULT_SCHEDULE_SETTINGS, type ScheduleSettings } from '@reindeer/runtime';
import { milliseconds } from './readers.ts';
import type { ConfigFile } from './schema.ts';

type Section = NonNullable<ConfigFile['scheduler']>;

/** The settings of scheduled tasks; what the file leaves out has its default. */
export function schedulesOf(section: Section = {}): ScheduleSettings {
  const base = DEFAULT_SCHEDULE_SETTINGS;
  return {
    ...base,
    enabled: section.enabled ?? base.enabled,
    pollMs: milliseconds(section.poll_interval_seconds, base.pollMs),
    leaseMs: milliseconds(section.lease_seconds, base.leaseMs),
    maxRuns: section.max_concurrent_runs ?? base.maxRuns,
    minDelayMs: milliseconds(section.min_once_delay_seconds, base.minDelayMs),
    maxPerUser: section.max_tasks_per_user ?? base.maxPerUser,
  };
}
