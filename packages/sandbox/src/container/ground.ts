import { mkdir, realpath } from 'node:fs/promises';
import {
  type IsolationReport,
  ReindeerError,
  type SandboxFiles,
  type SandboxIdentity,
  type Surroundings,
} from '@reindeer/protocol';
import type { Executor } from '../executor.ts';
import { Matcher } from '../files/matcher.ts';
import { Staging } from '../files/staging.ts';
import { ThreadFiles } from '../files/thread-files.ts';
import { toolMappings } from '../files/virtual-path.ts';
import { makeThreadFolders, threadPaths } from '../folders.ts';
import type { ThreadStorage } from '../lifecycle/parts.ts';
import { storageOf } from '../lifecycle/storage.ts';
import { PipePool } from '../process/pipes.ts';
import { ThreadSandboxProvider, trashFolder } from '../provider.ts';
import { DEFAULT_SANDBOX_SETTINGS } from '../settings.ts';
import { ContainerClients } from './clients.ts';
import { ownerOf } from './identity.ts';
import { RunFolders } from './run-folders.ts';
import { ContainerSecrets } from './secrets.ts';
import type { ContainerSettings } from './settings.ts';

/** What stands below every backend whose sandboxes have our server in them. */
export interface Ground {
  /** Real path of the data folder. */
  readonly home: string;
  readonly secrets: ContainerSecrets;
  readonly folders: RunFolders;
  readonly clients: ContainerClients;
  readonly storage: ThreadStorage;
}

/** @throws ReindeerError `configuration` for a data folder that cannot be written */
export async function openGround(input: {
  readonly home: string;
  readonly settings: ContainerSettings;
  readonly surroundings: Surroundings;
  readonly environment: Readonly<Record<string, string | undefined>>;
}): Promise<Ground> {
  const { settings, surroundings, environment } = input;
  const home = await madeHome(input.home);
  const secrets = await ContainerSecrets.open(`${home}/sandbox/container-key`);
  const folders = new RunFolders(home);
  const matcher = new Matcher();
  const storage = threadStorage(home, surroundings, matcher);
  const files = (identity: SandboxIdentity): SandboxFiles => {
    const paths = threadPaths(home, identity.userId, identity.threadId);
    return new ThreadFiles({
      // As tools see them: what a person uploaded is not changed by a model.
      mappings: toolMappings(paths),
      staging: new Staging(paths.staging, surroundings.random),
      matcher,
      clock: surroundings.clock,
      prepare: () => storage.prepare(identity),
    });
  };
  const clients = new ContainerClients({ settings, surroundings, home, secrets, folders, files, environment });
  return { home, secrets, folders, clients, storage };
}

async function madeHome(home: string): Promise<string> {
  try {
    await mkdir(trashFolder(home), { recursive: true, mode: 0o700 });
    return await realpath(home);
  } catch (cause) {
    throw new ReindeerError(
      'configuration',
      `The data folder ${home} cannot be written; check its owner and permissions.`,
      { cause },
    );
  }
}

const FILES_ONLY: IsolationReport = { provider: 'files-only', canExecute: false, network: 'none', limits: [] };

/** The folders of threads, owned by whoever runs in their containers. */
function threadStorage(home: string, surroundings: Surroundings, matcher: Matcher): ThreadStorage {
  const executor: Executor = {
    report: FILES_ONLY,
    pathStyle: 'virtual',
    prepare: async (paths, key) => {
      const { uid } = await ownerOf(home, paths, key);
      await makeThreadFolders(paths, process.getuid?.() === 0 ? uid : null);
    },
    execute: null,
    close: async () => {},
  };
  const pipes = new PipePool(`${home}/sandbox/pipes-${surroundings.random.uuid()}`);
  return storageOf(
    new ThreadSandboxProvider({ executor, settings: DEFAULT_SANDBOX_SETTINGS, home, surroundings, matcher, pipes }),
  );
}
