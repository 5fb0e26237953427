import type { BatchItemStatus, BatchStore, FinishItem, ItemLease } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';
import { Coalescer } from './coalesce.ts';

/** @param first as `call`, ahead of what waits: for renewals */
export function batchStore(call: Call, first: Call): BatchStore {
  // Items that begin or end in the same moment cost one transaction together.
  const starts = new Coalescer<{ readonly lease: ItemLease; readonly now: number }, boolean>((inputs) =>
    call('batches.start', {
      leases: inputs.map(({ lease }) => lease),
      now: Math.max(...inputs.map(({ now }) => now)),
    }),
  );
  const ends = new Coalescer<FinishItem, BatchItemStatus | null>(
    (items) => call('batches.finish', { items }),
    (item) => (item.succeeded ? item.result.length + item.resultPreview.length : item.error.length),
  );
  return {
    create: (input) => call('batches.create', input),
    get: (input) => call('batches.get', input),
    list: (input) => call('batches.list', input),
    items: (input) => call('batches.items', input),
    claim: (input) => call('batches.claim', input),
    renew: (input) => first('batches.renew', input),
    start: (input) => starts.call(input),
    finish: (input) => ends.call(input),
    release: (input) => call('batches.release', input),
    forfeit: (input) => call('batches.forfeit', input),
    pause: (input) => call('batches.pause', input),
    resume: (input) => call('batches.resume', input),
    cancel: (input) => call('batches.cancel', input),
    cancelItem: (input) => call('batches.cancelItem', input),
    retryItem: (input) => call('batches.retryItem', input),
    claimEnded: (input) => call('batches.claimEnded', input),
    filed: (input) => call('batches.filed', input),
    postpone: (input) => call('batches.postpone', input),
    reported: (input) => call('batches.reported', input),
    leftThreads: (input) => call('batches.leftThreads', input),
    told: (input) => call('batches.told', input),
  };
}
