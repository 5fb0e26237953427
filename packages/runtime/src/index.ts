export { columnsOf, csvLines, itemsOf, jsonLines, resultView } from './batches/report.ts';
export { type FilesOf, ResultKeeper } from './batches/results.ts';
export { type BatchParts, LocalBatchService } from './batches/service.ts';
export { type BatchSettings, DEFAULT_BATCH_SETTINGS } from './batches/settings.ts';
export { BatchWorker, type WorkerParts } from './batches/worker.ts';
export { EffectsRegistry } from './effects/effects.ts';
export { LeaseKeeper, type LeaseListener, type LeaseSettings } from './leases/keeper.ts';
export { type ClaimedRun, Recovery, type RecoverySettings } from './leases/recovery.ts';
export { type Ending, endingOf, endingOfOrphan } from './runs/ending.ts';
export type { StopReason } from './runs/local-run.ts';
export type { RuntimeHooks, SaverFor } from './runs/ports.ts';
export {
  createRuntime,
  type LiveRuntimeSettings,
  type Runtime,
  type RuntimeCounters,
  type RuntimeParts,
  type RuntimeStats,
  type StopReport,
} from './runtime.ts';
export * from './saver/index.ts';
export { LocalScheduleService, type ScheduleFields, type ScheduleParts } from './schedules/service.ts';
export { DEFAULT_SCHEDULE_SETTINGS, type ScheduleSettings } from './schedules/settings.ts';
export { DEFAULT_SETTINGS, type RuntimeSettings } from './settings.ts';
export { systemSurroundings } from './surroundings.ts';
export { apiState } from './threads/snapshot.ts';
