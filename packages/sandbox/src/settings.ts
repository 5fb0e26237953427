/** What the operator may set; the keys are those below `sandbox:` in the configuration, in our spelling. */
export interface SandboxSettings {
  /** Which provider: `bubblewrap` (default; falls back to file tools only) or `local`. */
  readonly use: 'bubblewrap' | 'local';
  /** Needed for `local`: commands then run as the user of the server, with that user's files in reach. */
  readonly allowHostBash: boolean;
  /** Most milliseconds one command may take; a request may ask for less. */
  readonly bashCommandTimeoutMs: number;
  /** `none`: no network at all. `host`: the host's network, loopback included. */
  readonly network: 'none' | 'host';
  /** Memory of one command with all its processes, in bytes. */
  readonly memoryBytes: number;
  /** Processes and threads of one command. */
  readonly processes: number;
  /** Disk space of one thread's folders, in bytes; also the largest single file. */
  readonly diskBytes: number;
  /** Bytes of output kept of one command; more is read and dropped. */
  readonly outputBytes: number;
  /** Bytes of output after which a command is ended. */
  readonly outputEndBytes: number;
  /** Commands that may run at once; more are refused with `over_capacity`. */
  readonly maxCommands: number;
  /** Added to the environment of every command; values are resolved by the caller. */
  readonly environment: Readonly<Record<string, string>>;
  /** Real folders hidden from every command although they lie below a folder that is mounted, such as `/usr/src/app`. */
  readonly hiddenFolders: readonly string[];
}

const MIB = 1024 * 1024;

export const DEFAULT_SANDBOX_SETTINGS: SandboxSettings = {
  use: 'bubblewrap',
  allowHostBash: false,
  bashCommandTimeoutMs: 600_000,
  network: 'none',
  memoryBytes: 2_048 * MIB,
  processes: 512,
  diskBytes: 2_048 * MIB,
  outputBytes: 10 * MIB,
  outputEndBytes: 100 * MIB,
  maxCommands: 64,
  environment: {},
  hiddenFolders: [],
};

/** What may change while the provider lives, for sandboxes that are acquired from then on. */
const LIVE = ['bashCommandTimeoutMs', 'memoryBytes', 'processes', 'diskBytes', 'maxCommands', 'environment'] as const;

/** Takes over new settings in two steps: checks them (throws `configuration`), and lets them count. */
export type ChangeSettings<T> = (changed: Partial<T>) => () => void;

/**
 * How the settings of a provider change in place: what may not change stays as it is.
 *
 * @param live keys that may
 * @param check throws for settings that cannot be kept
 */
export function changesOf<T extends object>(
  settings: T,
  defaults: T,
  live: readonly (keyof T)[],
  check: (settings: T) => void,
): ChangeSettings<T> {
  return (changed) => {
    const next = { ...settings };
    for (const key of live) next[key] = changed[key] ?? defaults[key];
    check(next);
    return () => void Object.assign(settings, next);
  };
}

export const changesOfSandbox = (settings: SandboxSettings, check: (settings: SandboxSettings) => void) =>
  changesOf(settings, DEFAULT_SANDBOX_SETTINGS, LIVE, check);
