// npm run requirements [-- --json]: which rows the last whole test run proved.
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { TestRecord } from '../scripts/reporter.ts';

const root = join(import.meta.dirname, '..');

type RowClass = 'adopted' | 'replaced' | 'later';
type RowState = 'verified' | 'open' | 'replaced' | 'later';

interface Row {
  readonly id: string;
  readonly area: string;
  readonly priority: string;
  readonly class: RowClass;
  readonly what: string;
  readonly note: string;
}

async function readRows(): Promise<readonly Row[]> {
  const [, ...lines] = (await readFile(join(root, 'requirements/requirements.tsv'), 'utf8')).trimEnd().split('\n');
  return lines.map((line, index) => {
    const [id = '', area = '', priority = '', rowClass = '', what = '', note = ''] = line.split('\t');
    if (rowClass !== 'adopted' && rowClass !== 'replaced' && rowClass !== 'later') {
      throw new Error(`requirements.tsv:${index + 2}: class "${rowClass}" of ${id}; use adopted, replaced or later`);
    }
    if (rowClass === 'replaced' && note === '')
      throw new Error(`requirements.tsv:${index + 2}: ${id} is replaced; say by what in the note`);
    return { id, area, priority, class: rowClass, what, note };
  });
}

/** Ids in the sources, whether or not their tests ran. */
async function readCitations(): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for await (const file of glob('{packages/*/src,tests,bench}/**/*.{ts,tsx}', { cwd: root })) {
    // Its documentation shows a citation.
    if (file.endsWith('testkit/src/verifies.ts')) continue;
    const text = await readFile(join(root, file), 'utf8');
    for (const call of text.matchAll(/\bverifies\(([^)]*)\)/g)) {
      for (const id of (call[1] ?? '').matchAll(/['"]([A-Z]+-[A-Za-z0-9-]+)['"]/g)) found.set(id[1] ?? '', file);
    }
  }
  return found;
}

const { values } = parseArgs({ options: { json: { type: 'boolean' }, open: { type: 'boolean' } } });
const rows = await readRows();
const known = new Map(rows.map((row) => [row.id, row]));
const problems: string[] = [];

const lastRun = await readFile(join(root, '.test-results/last-run.json'), 'utf8')
  .then((text): { complete: boolean; tests: TestRecord[] } => JSON.parse(text))
  .catch(() => null);
if (lastRun === null || !lastRun.complete) problems.push('there is no whole test run yet; run `npm test` first');

/** A row is proved when at least one test cites it and every test that cites it and ran has passed. */
const passed = new Set<string>();
const failed = new Map<string, string>();
const skipped = new Map<string, string>();
for (const test of lastRun?.tests ?? []) {
  for (const id of test.verifies) {
    const where = `${test.file} › ${test.name}`;
    if (!known.has(id)) problems.push(`${where} cites ${id}, which is no row of requirements.tsv`);
    else if (test.state === 'passed') passed.add(id);
    else if (test.state === 'failed') failed.set(id, where);
    else skipped.set(id, where);
  }
}
for (const [id, where] of failed) problems.push(`${id}: its test failed: ${where}`);
for (const [id, file] of await readCitations()) {
  if (!known.has(id)) problems.push(`${file} cites ${id}, which is no row of requirements.tsv`);
  else if (lastRun !== null && !passed.has(id) && !failed.has(id) && !skipped.has(id))
    problems.push(`${file} cites ${id}, but no test with it was in the last run`);
}

const stateOf = (row: Row): RowState => {
  // A replaced row is judged by what replaces it; its own text is not a promise any more.
  if (row.class === 'replaced') return 'replaced';
  if (passed.has(row.id) && !failed.has(row.id)) return 'verified';
  return row.class === 'adopted' ? 'open' : 'later';
};
const ids: Record<string, RowState> = {};
const areas: Record<string, Record<RowState, number>> = {};
const total: Record<RowState, number> = { verified: 0, open: 0, replaced: 0, later: 0 };
for (const row of rows) {
  const state = stateOf(row);
  ids[row.id] = state;
  total[state] += 1;
  const area = areas[row.area] ?? { verified: 0, open: 0, replaced: 0, later: 0 };
  areas[row.area] = { ...area, [state]: area[state] + 1 };
}

if (values.json) {
  process.stdout.write(`${JSON.stringify({ ...total, areas, ids, problems })}\n`);
} else {
  for (const [area, count] of Object.entries(areas)) {
    process.stdout.write(
      `${area.padEnd(10)} ${count.verified} verified, ${count.open} open, ${count.replaced} replaced, ${count.later} later\n`,
    );
  }
  process.stdout.write(
    `${'all'.padEnd(10)} ${total.verified} verified, ${total.open} open, ${total.replaced} replaced, ${total.later} later\n`,
  );
  if (values.open)
    for (const row of rows)
      if (stateOf(row) === 'open')
        process.stdout.write(`  open ${row.id.padEnd(9)} ${row.priority} ${row.what.slice(0, 140)}\n`);
  for (const [id, where] of skipped) if (!passed.has(id)) process.stdout.write(`  not run: ${id} (${where})\n`);
  for (const problem of problems) process.stdout.write(`  ${problem}\n`);
}
process.exitCode = problems.length === 0 ? 0 : 1;
