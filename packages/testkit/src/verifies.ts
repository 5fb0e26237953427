import type {} from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    /** Requirement ids that the test proves; collected by `npm test` for `npm run requirements`. */
    verifies?: readonly string[];
  }
}

/**
 * Names the requirement rows that a test proves: `test('…', verifies('SO-06'), async () => {…})`.
 * A row counts as proved when its test passed in the last whole run, and breaking the code turns the test red.
 */
export function verifies(...ids: [string, ...string[]]): { meta: { verifies: readonly string[] } } {
  return { meta: { verifies: ids } };
}
