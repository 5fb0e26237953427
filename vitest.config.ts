import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.{ts,tsx}'],
          exclude: ['**/*.real.test.ts', '**/*.conformance.test.ts'],
          testTimeout: 15_000,
        },
      },
      // Suites of others, which want the test functions as globals.
      {
        test: {
          name: 'conformance',
          include: ['packages/*/src/**/*.conformance.test.ts'],
          globals: true,
          testTimeout: 15_000,
        },
      },
      // Real parts: processes, bubblewrap, sockets, browsers. One file at a time.
      {
        test: {
          name: 'real',
          include: ['packages/*/src/**/*.real.test.ts', 'tests/**/*.test.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
