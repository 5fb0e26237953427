/** All times in milliseconds. */
export interface ScheduleSettings {
  /** Does this process start what is due? */
  readonly enabled: boolean;
  /** How often it looks without a hint. */
  readonly pollMs: number;
  /** A launch that was begun and not finished is begun again, by whoever looks, after this. */
  readonly leaseMs: number;
  /** Occurrences at work at once, of all users and instances together. */
  readonly maxRuns: number;
  /** How far ahead the time of a schedule of type `once` must be. */
  readonly minDelayMs: number;
  readonly maxPerUser: number;
  /** Finished occurrences that are kept per schedule. */
  readonly keep: number;
  /** An occurrence that could not be launched for so long has failed. */
  readonly giveUpMs: number;
}

export const DEFAULT_SCHEDULE_SETTINGS: ScheduleSettings = {
  enabled: true,
  pollMs: 5_000,
  leaseMs: 120_000,
  maxRuns: 3,
  minDelayMs: 60_000,
  maxPerUser: 1_000,
  keep: 1_000,
  giveUpMs: 3_600_000,
};
