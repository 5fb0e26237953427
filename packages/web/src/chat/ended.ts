import type { RunEntry } from '../api/api.ts';
import type { EndedRun } from './state.ts';

export function isActive(run: RunEntry): boolean {
  return run.status === 'pending' || run.status === 'running';
}

/** How a run ended, from its row. `asks`: it stopped by itself, to ask something. */
export function endedBy(run: RunEntry, asks: boolean): EndedRun {
  switch (run.status) {
    case 'error':
      return { how: 'failed', trouble: { kind: 'model', detail: run.error } };
    case 'timeout':
      return { how: 'timeout', trouble: { kind: 'server', detail: run.error } };
    case 'interrupted':
      return { how: asks ? 'success' : 'stopped', trouble: null };
    default:
      return { how: 'success', trouble: null };
  }
}
