// A process that works on batches of a Postgres until it is killed: the product's worker, with children that take a moment and note in a table
// that they were here. Arguments: URL, instance id.
import { setTimeout as pause } from 'node:timers/promises';
import { openPostgres } from '@reindeer/database';
import { NO_BATCH_USAGE, NO_LOG } from '@reindeer/protocol';
import { BatchWorker, DEFAULT_BATCH_SETTINGS, ResultKeeper, systemSurroundings } from '@reindeer/runtime';
import pg from 'pg';

const [url = '', instanceId = ''] = process.argv.slice(2);
const surroundings = systemSurroundings();
const stores = await openPostgres({ url, folder: null, surroundings, instanceId });
const notes = new pg.Pool({ connectionString: url, max: 4 });
const note = (text: string, values: unknown[]) => notes.query({ text, values });
const settings = { ...DEFAULT_BATCH_SETTINGS, leaseMs: 10_000, maxRunningHere: 16 };
const worker = new BatchWorker({
  store: stores.batches,
  surroundings,
  settings,
  instanceId,
  results: new ResultKeeper(null, settings, NO_LOG),
  onChange: () => {},
  executor: {
    prepare: async ({ item }) => ({
      run: async () => {
        const { itemId, epoch } = item.lease;
        await note('insert into child_notes (item_id, epoch, what, at) values ($1, $2, $3, clock_timestamp())', [
          itemId,
          epoch,
          'begun',
        ]);
        await pause(20 + (item.position % 7) * 15);
        await note('insert into child_notes (item_id, epoch, what, at) values ($1, $2, $3, clock_timestamp())', [
          itemId,
          epoch,
          'ended',
        ]);
        return {
          outcome: 'succeeded',
          result: `done ${item.position} #${epoch}`,
          stopReason: null,
          modelName: null,
          usage: NO_BATCH_USAGE,
        };
      },
      forget: async () => {},
    }),
  },
});
await worker.start();
process.send?.('working');
