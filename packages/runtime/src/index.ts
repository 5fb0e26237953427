export { csvLines, itemsOf, jsonLines } from './batches/report.ts';
export { ResultKeeper } from './batches/results.ts';
export { LocalBatchService } from './batches/service.ts';
export { type BatchSettings, DEFAULT_BATCH_SETTINGS } from './batches/settings.ts';
export { BatchWorker } from './batches/worker.ts';
export type { SaverFor } from './runs/ports.ts';
export {
  createRuntime,
  type LiveRuntimeSettings,
  type Runtime,
  type RuntimeCounters,
  type RuntimeStats,
} from './runtime.ts';
export * from './saver/index.ts';
export { LocalScheduleService, type ScheduleFields } from './schedules/service.ts';
export { DEFAULT_SCHEDULE_SETTINGS, type ScheduleSettings } from './schedules/settings.ts';
export { DEFAULT_SETTINGS, type RuntimeSettings } from './settings.ts';
export { systemSurroundings } from './surroundings.ts';
