/** All times in milliseconds. */
export interface BatchSettings {
  /** Do workers run here? */
  readonly enabled: boolean;
  /** How often the scheduler looks without a hint. */
  readonly pollMs: number;
  /** A lease lasts this long; it is renewed every third of it. */
  readonly leaseMs: number;
  readonly maxItems: number;
  readonly defaultMaxLive: number;
  readonly maxLive: number;
  readonly defaultMaxRunning: number;
  /** Most items of one batch at work at once. */
  readonly maxRunning: number;
  /** Most items at work at once in this process, of all batches together. */
  readonly maxRunningHere: number;
  readonly maxAttempts: number;
  /** Characters of a result that the row keeps; the whole goes to a file. */
  readonly maxResultChars: number;
  readonly previewChars: number;
  /** Characters of one item's prompt, and of all of a batch together. */
  readonly maxPromptChars: number;
  readonly maxTotalChars: number;
  /** How long a child that was told to stop is waited for. */
  readonly drainMs: number;
  /** Pause before a failed attempt is repeated; it doubles with each attempt, up to `maxBackoffMs`. */
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
}

export const DEFAULT_BATCH_SETTINGS: BatchSettings = {
  enabled: true,
  pollMs: 1_000,
  leaseMs: 30_000,
  maxItems: 5_000,
  defaultMaxLive: 100,
  maxLive: 1_000,
  defaultMaxRunning: 3,
  maxRunning: 64,
  maxRunningHere: 64,
  maxAttempts: 3,
  maxResultChars: 100_000,
  previewChars: 2_000,
  maxPromptChars: 100_000,
  maxTotalChars: 64 * 1024 * 1024,
  drainMs: 60_000,
  backoffMs: 1_000,
  maxBackoffMs: 60_000,
};
