// npm run chaos -- --minutes 3 [--seed 1] [--json]: a storm over three servers on one Postgres, without and with Redis in turn.
// npm run chaos -- --batch [--items 5000] [--servers | --sqlite] [--json]: a batch on three workers on one Postgres, one of them killed every few
// seconds; with --servers whole servers, built ones, whose items are sub-agents; with --sqlite one such server, which is told to stop half-way and
// started again.
// npm run chaos -- --rounds 200 [--seed 1] [--json]: one server on SQLite, killed again and again.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { workersChaos } from './batch-workers.ts';
import { killRounds } from './kill.ts';
import { stormMinutes } from './storm/minutes.ts';

const USE =
  'Use: npm run chaos -- --minutes 3 | --rounds 200 | --batch [--items 5000] [--servers | --sqlite] [--seed 1] [--json]\n';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    rounds: { type: 'string' },
    batch: { type: 'boolean', default: false },
    items: { type: 'string', default: '5000' },
    servers: { type: 'boolean', default: false },
    sqlite: { type: 'boolean', default: false },
    seed: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
  },
});
const seed = Number(values.seed);
const minutes = Number(values.minutes ?? 0);
const items = Number(values.items);
const rounds = Number(values.rounds ?? (values.minutes === undefined && !values.batch ? 200 : 0));
const sound =
  Number.isInteger(seed) &&
  Number.isInteger(rounds) &&
  Number.isInteger(items) &&
  items > 0 &&
  rounds >= 0 &&
  minutes >= 0 &&
  !(values.servers && values.sqlite) &&
  [rounds > 0, minutes > 0, values.batch].filter(Boolean).length === 1;
if (!sound) {
  process.stderr.write(USE);
  process.exit(2);
}
const options = { seed, json: values.json };
if (values.batch && (values.servers || values.sqlite)) {
  // From source a start costs as much as twenty items, and there is one every few seconds. The entry is read when the module is loaded.
  const root = join(import.meta.dirname, '../..');
  if (process.env.REINDEER_TEST_ENTRY === undefined) {
    await promisify(execFile)(process.execPath, [join(root, 'scripts/build.ts')], { cwd: root });
    process.env.REINDEER_TEST_ENTRY = join(root, 'dist/server/main.js');
  }
  const { batchChaos } = await import('./batch.ts');
  const { stopChaos } = await import('./batch-stop.ts');
  process.exitCode = await (values.sqlite ? stopChaos : batchChaos)({ items, json: values.json });
} else if (values.batch) process.exitCode = await workersChaos({ items, json: values.json });
else
  process.exitCode =
    minutes > 0 ? await stormMinutes({ ...options, minutes }) : await killRounds({ ...options, rounds });
