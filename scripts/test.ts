// Runs every suite, each within its time; prints what was skipped and why, and the count as the last line.
import { spawn } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { TestRecord } from './reporter.ts';

const root = join(import.meta.dirname, '..');
let running: number | undefined;

// A suite is a group of its own, so that one that is late can be ended whole; a Ctrl-C reaches only this process.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.once(signal, () => {
    if (running !== undefined) process.kill(-running, 'SIGKILL');
    process.exit(130);
  });

const results = join(root, '.test-results');
const bin = (name: string) => join(root, 'node_modules', '.bin', name);

interface Suite {
  readonly name: string;
  readonly command: readonly string[];
  /** The suite is stopped, and counts as failed, after this many seconds. */
  readonly seconds: number;
  /** Vitest suites report their tests; any other suite is one check. */
  readonly records: boolean;
  /** Another suite that must have run before, also when only this one is asked for. */
  readonly after?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

const vitest = (name: string, seconds: number, more: Partial<Suite> & { readonly projects?: string } = {}): Suite => ({
  ...more,
  name,
  command: [
    bin('vitest'),
    'run',
    '--project',
    more.projects ?? name,
    '--reporter=dot',
    `--reporter=${join(root, 'scripts/reporter.ts')}`,
  ],
  seconds,
  records: true,
});

/** The one table of suites and their time, with room for a busy machine; what they take stays below 20 minutes on 2 cores. */
const suites: readonly Suite[] = [
  { name: 'types', command: [bin('tsc'), '-b'], seconds: 120, records: false },
  {
    name: 'lint',
    command: [bin('biome'), 'check', '--error-on-warnings', '--diagnostic-level=warn', '.'],
    seconds: 60,
    records: false,
  },
  { name: 'house rules', command: [process.execPath, join(root, 'scripts/check.ts')], seconds: 60, records: false },
  { name: 'build', command: [process.execPath, join(root, 'scripts/build.ts')], seconds: 120, records: false },
  vitest('unit', 300, { projects: 'unit*' }),
  vitest('conformance', 90),
  // Servers run as they are shipped, from the bundle: from source each start costs three times as much.
  vitest('real', 690, { after: 'build', environment: { REINDEER_TEST_ENTRY: join(root, 'dist/server/main.js') } }),
  {
    name: 'simulation',
    // A part by time; more on demand: `npm run simulate -- --world all --seeds 20000 --mutants`.
    command: [
      process.execPath,
      join(root, 'packages/simulator/src/main.ts'),
      ...['--world', 'all', '--seeds', '5000', '--seconds', '5', '--mutants'],
    ],
    seconds: 120,
    records: false,
  },
];

async function runSuite(suite: Suite): Promise<{ records: TestRecord[]; seconds: number }> {
  const started = performance.now();
  const record = join(results, `${suite.name.replaceAll(' ', '-')}.json`);
  await rm(record, { force: true });
  process.stdout.write(`\n── ${suite.name}\n`);
  const [program, ...args] = suite.command;
  const child = spawn(program ?? '', args, {
    cwd: root,
    env: { ...process.env, ...suite.environment, REINDEER_TEST_RECORD: record, FORCE_COLOR: '0' },
    stdio: ['ignore', 'inherit', 'inherit'],
    detached: true,
  });
  running = child.pid;
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
  }, suite.seconds * 1000);
  const code = await new Promise<number>((resolve) => {
    child.once('error', () => resolve(127));
    child.once('exit', (value) => resolve(value ?? 128));
  });
  clearTimeout(timer);
  running = undefined;
  const seconds = (performance.now() - started) / 1000;
  const self = (state: 'passed' | 'failed', name: string): TestRecord => ({
    suite: suite.name,
    file: '',
    name,
    state,
    verifies: [],
  });
  if (!suite.records)
    return {
      records: [
        self(
          code === 0 ? 'passed' : 'failed',
          late ? `${suite.name}: not finished within ${suite.seconds} s` : suite.name,
        ),
      ],
      seconds,
    };
  const records: TestRecord[] = JSON.parse(await readFile(record, 'utf8').catch(() => '[]'));
  if (late) records.push(self('failed', `${suite.name}: not finished within ${suite.seconds} s`));
  else if (records.length === 0) records.push(self('failed', `${suite.name}: no test ran (exit code ${code})`));
  else if (code !== 0 && !records.some((test) => test.state === 'failed'))
    records.push(self('failed', `${suite.name}: exit code ${code}`));
  return { records, seconds };
}

const { values } = parseArgs({
  options: { only: { type: 'string', multiple: true }, help: { type: 'boolean', short: 'h' } },
});
if (values.help) {
  process.stdout.write(`npm test [-- --only SUITE …]\nSuites: ${suites.map((suite) => suite.name).join(', ')}\n`);
  process.exit(0);
}
const unknown = values.only?.find((name) => !suites.some((suite) => suite.name === name));
if (unknown !== undefined) {
  process.stderr.write(`There is no suite "${unknown}". Suites: ${suites.map((suite) => suite.name).join(', ')}\n`);
  process.exit(2);
}

await mkdir(results, { recursive: true });
const all: TestRecord[] = [];
const times: string[] = [];
const begun = performance.now();
const wanted = suites.filter(({ name }) => values.only?.includes(name) ?? true);
for (const suite of suites.filter((one) => wanted.includes(one) || wanted.some(({ after }) => after === one.name))) {
  const { records, seconds } = await runSuite(suite);
  all.push(...records);
  times.push(`${suite.name} ${seconds.toFixed(0)} s`);
}
const complete = values.only === undefined;
await writeFile(join(results, 'last-run.json'), JSON.stringify({ at: new Date().toISOString(), complete, tests: all }));

if (complete) {
  const { records } = await runSuite({
    name: 'requirements',
    command: [process.execPath, join(root, 'requirements/main.ts')],
    seconds: 30,
    records: false,
  });
  all.push(...records);
}

const count = (state: TestRecord['state']) => all.filter((test) => test.state === state).length;
const failed = all.filter((test) => test.state === 'failed');
const skipped = all.filter((test) => test.state === 'skipped');
process.stdout.write(
  `\n${times.join(' · ')} · total ${((performance.now() - begun) / 1000).toFixed(0)} s on ${availableParallelism()} cores\n`,
);
if (skipped.length > 0) {
  process.stdout.write('\nSkipped:\n');
  for (const test of skipped)
    process.stdout.write(`  ${test.file} › ${test.name}: ${test.note ?? 'no reason given'}\n`);
}
if (failed.length > 0) {
  process.stdout.write('\nFailed:\n');
  for (const test of failed) process.stdout.write(`  ${test.file === '' ? '' : `${test.file} › `}${test.name}\n`);
}
process.stdout.write(`\n${count('passed')} passed, ${failed.length} failed, ${skipped.length} skipped\n`);
process.exitCode = failed.length > 0 ? 1 : 0;
