import { admit } from './admit.ts';
import { claimOrphans, renew, renewOne } from './leases.ts';
import { freeQueues, takeQueued } from './queue.ts';
import { active, getRun, list } from './reads.ts';
import { finalize, release, relinquish, remove, requestCancel, start } from './transitions.ts';

export const runScripts = {
  'runs.admit': admit,
  'runs.start': start,
  'runs.finalize': finalize,
  'runs.requestCancel': requestCancel,
  'runs.renew': renew,
  'runs.renewOne': renewOne,
  'runs.claimOrphans': claimOrphans,
  'runs.takeQueued': takeQueued,
  'runs.freeQueues': freeQueues,
  'runs.get': getRun,
  'runs.list': list,
  'runs.active': active,
  'runs.release': release,
  'runs.relinquish': relinquish,
  'runs.remove': remove,
};
