import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { NO_LOG, NO_PROBE } from '@reindeer/protocol';
import { openPostgres } from './open.ts';

/** A process for `start.real.test.ts`: opens the database, says who it is, and stays until its standard input ends. */
const [url = ''] = process.argv.slice(2);
const stores = await openPostgres({
  url,
  folder: null,
  connections: 1,
  surroundings: {
    clock: {
      now: () => Date.now(),
      monotonic: () => performance.now(),
      sleep: (milliseconds, signal) => sleep(milliseconds, undefined, signal === undefined ? {} : { signal }),
    },
    random: { uuid: () => randomUUID(), next: () => Math.random() },
    probe: NO_PROBE,
    logger: NO_LOG,
  },
});
process.stdout.write(`${JSON.stringify({ ...stores.identity, databaseId: stores.databaseId })}\n`);
process.stdin.resume();
process.stdin.on('end', () => void stores.close());
