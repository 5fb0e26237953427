import { mkdir, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';

/** One test of a run, as `npm test` and `npm run requirements` read it. */
export interface TestRecord {
  readonly suite: string;
  readonly file: string;
  readonly name: string;
  readonly state: 'passed' | 'failed' | 'skipped';
  /** Why a skipped test did not run. */
  readonly note?: string;
  readonly verifies: readonly string[];
}

/** Writes every test of a run as JSON to the file named by `REINDEER_TEST_RECORD`. */
export default class RecordReporter implements Reporter {
  async onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): Promise<void> {
    const file = process.env.REINDEER_TEST_RECORD;
    if (file === undefined) return;
    const records: TestRecord[] = [];
    for (const module of modules) {
      let any = false;
      for (const test of module.children.allTests()) {
        any = true;
        const result = test.result();
        const state = result.state === 'pending' ? 'skipped' : result.state;
        const note = result.state === 'skipped' ? result.note : undefined;
        records.push({
          suite: module.project.name,
          file: module.relativeModuleId,
          name: test.fullName,
          state,
          ...(note === undefined ? {} : { note }),
          verifies: (test.meta() as { verifies?: readonly string[] }).verifies ?? [],
        });
      }
      // A file that could not be loaded has no tests; a hook that failed fails no test of its own.
      if (module.errors().length > 0 || (!any && module.state() === 'failed')) {
        records.push({
          suite: module.project.name,
          file: module.relativeModuleId,
          name: '(the file itself)',
          state: 'failed',
          verifies: [],
        });
      }
      for (const suite of module.children.allSuites()) {
        if (suite.errors().length > 0) {
          records.push({
            suite: module.project.name,
            file: module.relativeModuleId,
            name: `${suite.fullName} (hook)`,
            state: 'failed',
            verifies: [],
          });
        }
      }
    }
    for (const error of unhandledErrors) {
      records.push({ suite: 'unhandled', file: '', name: String(error).slice(0, 200), state: 'failed', verifies: [] });
    }
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, JSON.stringify(records));
  }
}
