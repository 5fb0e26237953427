// npm run bench [-- --json] [-- --only NAME …]: the budgets, as ratios within this run. Never a test: machines differ, ratios less so.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { holds, type Row } from './lib.ts';
import { stepRows, turnRows } from './rows-agent.ts';
import { batchRows } from './rows-batch.ts';
import { containerRows } from './rows-container.ts';
import { fanOutRow, httpRows, loopDelayRow } from './rows-http.ts';
import { langgraphRows } from './rows-langgraph.ts';
import { bootRows, sandboxRow } from './rows-machine.ts';
import { postgresRows } from './rows-postgres.ts';
import { lifecycleRows } from './rows-sandbox.ts';

const groups: Readonly<Record<string, () => Promise<readonly Row[]>>> = {
  steps: () => stepRows(3),
  turns: turnRows,
  http: () => httpRows(3),
  'fan-out': async () => [await fanOutRow()],
  loop: async () => [await loopDelayRow()],
  sandbox: async () => [await sandboxRow()].filter((row) => row !== null),
  lifecycle: lifecycleRows,
  containers: containerRows,
  boot: bootRows,
  postgres: () => postgresRows(3),
  batch: batchRows,
  langgraph: langgraphRows,
};
/** Only when named: it fetches the other server first. */
const ON_REQUEST = new Set(['langgraph']);

const { values } = parseArgs({ options: { json: { type: 'boolean' }, only: { type: 'string', multiple: true } } });
const unknown = values.only?.find((name) => groups[name] === undefined);
if (unknown !== undefined) {
  process.stderr.write(`There is no group "${unknown}". Groups: ${Object.keys(groups).join(', ')}\n`);
  process.exit(2);
}
const built = spawnSync(process.execPath, [join(import.meta.dirname, '../scripts/build.ts')], {
  stdio: ['ignore', 'ignore', 'inherit'],
});
if (built.status !== 0) process.exit(1);

const rows: Row[] = [];
for (const [name, run] of Object.entries(groups)) {
  if (values.only === undefined ? ON_REQUEST.has(name) : !values.only.includes(name)) continue;
  process.stderr.write(`· ${name} …\n`);
  rows.push(...(await run()));
}

const judge = (row: Row): 'ok' | 'missed' | 'ALARM' | 'info' => {
  if (row.alarm !== null && !holds(row.value, row.alarm)) return 'ALARM';
  if (row.target === null) return 'info';
  return holds(row.value, row.target) ? 'ok' : 'missed';
};
if (values.json) {
  process.stdout.write(`${JSON.stringify(rows)}\n`);
} else {
  for (const row of rows) {
    const value = `${row.value.toFixed(2)}${row.unit === 'ratio' ? '' : ` ${row.unit}`}`;
    process.stdout.write(
      `${judge(row).padEnd(6)} ${value.padStart(11)}  (target ${row.target ?? '-'}, alarm unless ${row.alarm ?? '-'})  ${row.name}; against ${row.against}\n`,
    );
    if (row.detail !== undefined)
      process.stdout.write(
        `${' '.repeat(21)}${Object.entries(row.detail)
          .map(([key, value]) => `${key} ${typeof value === 'number' ? Number(value.toPrecision(4)) : value}`)
          .join(', ')}\n`,
      );
  }
}
process.exitCode = rows.some((row) => judge(row) === 'ALARM') ? 1 : 0;
