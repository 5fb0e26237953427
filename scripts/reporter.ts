import { mkdir, rename, writeFile } from 'node:fs/promises';
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
  readonly #records: TestRecord[] = [];
  #writing: Promise<void> = Promise.resolve();

  /** Written after every file, so that a suite that runs out of time still tells what it found. */
  onTestModuleEnd(module: TestModule): Promise<void> {
    let any = false;
    for (const test of module.children.allTests()) {
      any = true;
      const result = test.result();
      const state = result.state === 'pending' ? 'skipped' : result.state;
      const note = result.state === 'skipped' ? result.note : undefined;
      this.#records.push({
        suite: module.project.name,
        file: module.relativeModuleId,
        name: test.fullName,
        state,
        ...(note === undefined ? {} : { note }),
        verifies: (test.meta() as { verifies?: readonly string[] }).verifies ?? [],
      });
    }
    // A file that could not be loaded has no tests; a hook that failed fails no test of its own.
    if (module.errors().length > 0 || (!any && module.state() === 'failed')) this.#failed(module, '(the file itself)');
    for (const suite of module.children.allSuites()) {
      if (suite.errors().length > 0) this.#failed(module, `${suite.fullName} (hook)`);
    }
    return this.#write();
  }

  onTestRunEnd(_modules: readonly TestModule[], unhandledErrors: readonly unknown[]): Promise<void> {
    for (const error of unhandledErrors) {
      const name = String((error as { message?: unknown }).message ?? error).slice(0, 200);
      this.#records.push({ suite: 'unhandled', file: '', name, state: 'failed', verifies: [] });
    }
    return this.#write();
  }

  #failed(module: TestModule, name: string): void {
    this.#records.push({
      suite: module.project.name,
      file: module.relativeModuleId,
      name,
      state: 'failed',
      verifies: [],
    });
  }

  #write(): Promise<void> {
    const file = process.env.REINDEER_TEST_RECORD;
    if (file === undefined) return Promise.resolve();
    this.#writing = this.#writing.then(async () => {
      await mkdir(dirname(file), { recursive: true });
      await writeFile(`${file}.new`, JSON.stringify(this.#records));
      await rename(`${file}.new`, file);
    });
    return this.#writing;
  }
}
