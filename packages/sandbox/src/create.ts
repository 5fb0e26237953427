import { mkdir, realpath } from 'node:fs/promises';
import { type IsolationReport, ReindeerError, type SandboxProvider, type Surroundings } from '@reindeer/protocol';
import { BubblewrapExecutor } from './bubblewrap/executor.ts';
import { endOrphans, markOf } from './bubblewrap/orphans.ts';
import { probeBubblewrap } from './bubblewrap/probe.ts';
import type { Executor } from './executor.ts';
import { Matcher } from './files/matcher.ts';
import { Staging } from './files/staging.ts';
import { makeThreadFolders } from './folders.ts';
import { LocalExecutor } from './local/executor.ts';
import { checkConfiguredEnvironment } from './process/environment.ts';
import { ProcessGuard } from './process/guard.ts';
import { PipePool } from './process/pipes.ts';
import { ThreadSandboxProvider, trashFolder } from './provider.ts';
import { type ChangeSettings, changesOfSandbox, DEFAULT_SANDBOX_SETTINGS, type SandboxSettings } from './settings.ts';

/** Trash of a crash is removed at a later start; younger trash may be another instance's work. */
const STALE_TRASH_MS = 60 * 60 * 1000;

export interface CreateSandboxProvider {
  /** What differs from `DEFAULT_SANDBOX_SETTINGS`. */
  readonly settings?: Partial<SandboxSettings>;
  /** The data folder; absolute, existing or not. */
  readonly home: string;
  readonly surroundings: Surroundings;
  /** The host's environment: `PATH` to find `bwrap`, and the variables of `local` commands. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Is given what changes the limits while the provider lives. */
  readonly onChanges?: (change: ChangeSettings<SandboxSettings>) => void;
}

/**
 * Finds out what this machine offers and returns the provider for it: `local` where it was asked for and allowed, else bubblewrap,
 * else file tools only with the reason and the remedy in `report()`. Throws `configuration` for settings that contradict each other.
 */
export async function createSandboxProvider(input: CreateSandboxProvider): Promise<SandboxProvider> {
  const settings = { ...DEFAULT_SANDBOX_SETTINGS, ...input.settings };
  checkSettings(settings);
  const { surroundings } = input;
  const folder = `${input.home}/sandbox`;
  try {
    await mkdir(trashFolder(input.home), { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new ReindeerError(
      'configuration',
      `The data folder ${input.home} cannot be written; check its owner and permissions.`,
      {
        cause,
      },
    );
  }
  const home = await realpath(input.home);
  await new Staging(trashFolder(home), surroundings.random).sweep(surroundings.clock.now(), STALE_TRASH_MS);
  const pipes = new PipePool(`${folder}/pipes-${surroundings.random.uuid()}`);
  const executor = await chooseExecutor({ ...input, home }, settings, pipes, new ProcessGuard(surroundings));
  const provider = new ThreadSandboxProvider({
    executor,
    settings,
    home,
    surroundings,
    matcher: new Matcher(),
    pipes,
  });
  const change = changesOfSandbox(settings, checkSettings);
  input.onChanges?.((changed) => {
    const commit = change(changed);
    return () => {
      commit();
      provider.forgetIdle();
    };
  });
  return provider;
}

async function chooseExecutor(
  input: CreateSandboxProvider,
  settings: SandboxSettings,
  pipes: PipePool,
  guard: ProcessGuard,
): Promise<Executor> {
  const { surroundings, environment, home } = input;
  if (settings.use === 'local') {
    if (settings.allowHostBash) return new LocalExecutor(settings, surroundings, pipes, guard, environment);
    return filesOnly(settings, {
      reason: 'sandbox.use is "local" and sandbox.allow_host_bash is not set (SL-15).',
      remedy:
        'set `sandbox.use: bubblewrap`, or `allow_host_bash: true` if commands may run as your own user without isolation.',
    });
  }
  const mark = markOf(home);
  const [orphans, result] = await Promise.all([
    endOrphans(mark),
    probeBubblewrap({
      mark,
      settings,
      surroundings,
      pipes,
      guard,
      folder: `${trashFolder(home)}/probe-${surroundings.random.uuid()}`,
      systemFolder: `${home}/sandbox`,
      // The working folder holds the configuration, and with it perhaps keys.
      hidden: [home, process.cwd(), ...settings.hiddenFolders],
      searchPath: environment.PATH ?? '/usr/local/bin:/usr/bin:/bin',
    }),
  ]);
  if (orphans > 0) surroundings.logger.info('Processes of a killed server were ended.', { count: orphans });
  if (!result.ok) {
    await guard.close();
    return filesOnly(settings, result);
  }
  return new BubblewrapExecutor(result.findings, settings, surroundings, pipes, guard, home);
}

/** No commands, but every file tool works. */
function filesOnly(settings: SandboxSettings, why: { readonly reason: string; readonly remedy: string }): Executor {
  const report: IsolationReport = {
    provider: 'files-only',
    canExecute: false,
    reason: why.reason,
    remedy: why.remedy,
    network: settings.network,
    limits: [],
  };
  return {
    report,
    pathStyle: 'virtual',
    prepare: (paths) => makeThreadFolders(paths, null),
    execute: null,
    close: async () => {},
  };
}

function checkSettings(settings: SandboxSettings): void {
  const numbers = [
    'bashCommandTimeoutMs',
    'memoryBytes',
    'processes',
    'diskBytes',
    'outputBytes',
    'outputEndBytes',
    'maxCommands',
  ] as const;
  for (const name of numbers) {
    if (Number.isSafeInteger(settings[name]) && settings[name] > 0) continue;
    throw new ReindeerError('configuration', `sandbox: ${name} must be a whole number above 0.`);
  }
  if (settings.outputEndBytes < settings.outputBytes) {
    throw new ReindeerError('configuration', 'sandbox: outputEndBytes must not be less than outputBytes.');
  }
  checkConfiguredEnvironment(settings.environment);
}
