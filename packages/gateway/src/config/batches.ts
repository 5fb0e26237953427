import { type BatchSettings, DEFAULT_BATCH_SETTINGS } from '@reindeer/runtime';
import { milliseconds, wrongValue } from './readers.ts';
import type { ConfigFile } from './schema.ts';

type Section = NonNullable<ConfigFile['subagent_batches']>;

/** The settings of batches; what the file leaves out has its default. Throws `configuration` when two of them contradict each other. */
export function batchesOf(section: Section = {}): BatchSettings {
  const base = DEFAULT_BATCH_SETTINGS;
  const maxLive = section.max_live_items ?? base.maxLive;
  const maxRunning = section.max_running_items ?? base.maxRunning;
  const settings: BatchSettings = {
    ...base,
    enabled: section.enabled ?? base.enabled,
    pollMs: milliseconds(section.poll_interval_seconds, base.pollMs),
    leaseMs: milliseconds(section.lease_seconds, base.leaseMs),
    maxItems: section.max_items ?? base.maxItems,
    maxLive,
    maxRunning,
    // A smaller limit takes its default along, unless the file says both.
    defaultMaxLive: section.default_max_live_items ?? Math.min(base.defaultMaxLive, maxLive),
    defaultMaxRunning: section.default_max_running_items ?? Math.min(base.defaultMaxRunning, maxRunning),
    maxRunningHere: section.max_running_per_instance ?? base.maxRunningHere,
    maxAttempts: section.max_attempts ?? base.maxAttempts,
    maxResultChars: section.max_result_chars ?? base.maxResultChars,
    previewChars: section.result_preview_chars ?? base.previewChars,
  };
  notAbove('default_max_live_items', settings.defaultMaxLive, 'max_live_items', maxLive);
  notAbove('default_max_running_items', settings.defaultMaxRunning, 'max_running_items', maxRunning);
  notAbove('max_running_items', maxRunning, 'max_live_items', maxLive);
  notAbove('default_max_running_items', settings.defaultMaxRunning, 'default_max_live_items', settings.defaultMaxLive);
  return settings;
}

function notAbove(name: string, value: number, limitName: string, limit: number): void {
  if (value <= limit) return;
  throw wrongValue(
    ['subagent_batches', name],
    `subagent_batches.${name} (${value}) is larger than ${limitName} (${limit}). Change one of them.`,
  );
}
