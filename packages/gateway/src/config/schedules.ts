import { DEFAULT_SCHEDULE_SETTINGS, type ScheduleSettings } from '@reindeer/runtime';
import type { ConfigFile } from './schema.ts';

type Section = NonNullable<ConfigFile['scheduler']>;

const ms = (seconds: number | undefined, otherwise: number): number =>
  seconds === undefined ? otherwise : seconds * 1000;

/** The settings of scheduled tasks; what the file leaves out has its default. */
export function schedulesOf(section: Section = {}): ScheduleSettings {
  const base = DEFAULT_SCHEDULE_SETTINGS;
  return {
    ...base,
    enabled: section.enabled ?? base.enabled,
    pollMs: ms(section.poll_interval_seconds, base.pollMs),
    leaseMs: ms(section.lease_seconds, base.leaseMs),
    maxRuns: section.max_concurrent_runs ?? base.maxRuns,
    minDelayMs: ms(section.min_once_delay_seconds, base.minDelayMs),
    maxPerUser: section.max_tasks_per_user ?? base.maxPerUser,
  };
}
