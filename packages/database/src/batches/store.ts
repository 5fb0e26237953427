import type { BatchStore } from '@reindeer/protocol';
import type { Call } from '../scripts.ts';

/** @param first as `call`, ahead of what waits: for renewals */
export function batchStore(call: Call, first: Call): BatchStore {
  return {
    create: (input) => call('batches.create', input),
    get: (input) => call('batches.get', input),
    list: (input) => call('batches.list', input),
    items: (input) => call('batches.items', input),
    claim: (input) => call('batches.claim', input),
    renew: (input) => first('batches.renew', input),
    start: (input) => call('batches.start', input),
    finish: (input) => call('batches.finish', input),
    release: (input) => call('batches.release', input),
    forfeit: (input) => call('batches.forfeit', input),
    pause: (input) => call('batches.pause', input),
    resume: (input) => call('batches.resume', input),
    cancel: (input) => call('batches.cancel', input),
    cancelItem: (input) => call('batches.cancelItem', input),
    retryItem: (input) => call('batches.retryItem', input),
    claimEnded: (input) => call('batches.claimEnded', input),
    reported: (input) => call('batches.reported', input),
    told: (input) => call('batches.told', input),
  };
}
