import { globSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';

const NOT_UNIT = ['**/*.real.test.ts', '**/*.conformance.test.ts'];
/** What a process has once: its timers and handles, its environment, its modules, its calls that block. */
const OF_THE_PROCESS =
  /\b(?:leakCheck|LeakWatch|withEventLoopGate|vi\.(?:mock|stub|spyOn|useFakeTimers)|process\.(?:env\.|on\(|memoryUsage)|globalThis\.fetch =|gc\()/;

/** Unit tests that look at such things or change them get a process for each file; all others share theirs, and with it what they import. */
const alone = globSync('packages/*/src/**/*.test.{ts,tsx}', { cwd: import.meta.dirname, exclude: NOT_UNIT }).filter(
  (file) => OF_THE_PROCESS.test(readFileSync(`${import.meta.dirname}/${file}`, 'utf8')),
);

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.{ts,tsx}'],
          exclude: [...NOT_UNIT, ...alone],
          testTimeout: 15_000,
          isolate: false,
          maxWorkers: '100%',
        },
      },
      { test: { name: 'unit-alone', include: alone, testTimeout: 15_000, maxWorkers: '100%' } },
      // Suites of others, which want the test functions as globals.
      {
        test: {
          name: 'conformance',
          include: ['packages/*/src/**/*.conformance.test.ts'],
          globals: true,
          testTimeout: 15_000,
        },
      },
      // Real parts: processes, bubblewrap, sockets, browsers. They mostly wait, so two files side by side.
      {
        test: {
          name: 'real',
          include: ['packages/*/src/**/*.real.test.ts', 'tests/**/*.test.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          maxWorkers: 2,
          // What is looked for again and again until it is there: a second is little beside other work.
          expect: { poll: { timeout: 15_000 } },
        },
      },
    ],
  },
});
