import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { Clock } from '@reindeer/protocol';
import { realClock, realSurroundings } from '@reindeer/testkit';
import { onTestFinished } from 'vitest';
import { Matcher } from './files/matcher.ts';
import { Staging } from './files/staging.ts';
import { ThreadFiles } from './files/thread-files.ts';
import { threadMappings } from './files/virtual-path.ts';
import { makeThreadFolders, type ThreadPaths, threadPaths } from './folders.ts';

/** An empty data folder that goes with the test. */
export async function temporaryHome(): Promise<string> {
  const home = await mkdtemp(`${tmpdir()}/reindeer-sandbox-`);
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  return home;
}

export interface TestThread {
  readonly files: ThreadFiles;
  /** The same files as tools see them: uploads are read-only. */
  readonly toolFiles: ThreadFiles;
  readonly paths: ThreadPaths;
  readonly home: string;
}

/** The files of one fresh thread, without a provider. */
export async function temporaryThread(
  options: { readonly matcher?: Matcher; readonly clock?: Clock } = {},
): Promise<TestThread> {
  const home = await temporaryHome();
  const paths = threadPaths(home, 'default', 'thread-1');
  const matcher = options.matcher ?? new Matcher();
  onTestFinished(() => matcher.close());
  await mkdir(home, { recursive: true });
  const make = (readOnly: readonly 'uploads'[]) =>
    new ThreadFiles({
      mappings: threadMappings(paths.userData, readOnly),
      staging: new Staging(paths.staging, realSurroundings().random),
      matcher,
      clock: options.clock ?? realClock,
      prepare: () => makeThreadFolders(paths, null),
    });
  return { files: make([]), toolFiles: make(['uploads']), paths, home };
}
