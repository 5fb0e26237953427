import { type IsolationReport, ReindeerError } from '@reindeer/protocol';
import type { EngineClient } from './engine.ts';
import { at } from './listing.ts';
import type { ContainerSettings } from './settings.ts';

/** What an engine says of itself. */
export interface EngineFacts {
  /** Docker or Podman, with its version, for the report. */
  readonly name: string;
  /** Runs without root: our own id is root in its containers. */
  readonly rootless: boolean;
  /** Maps user ids for all containers, unless one asks for the host's. */
  readonly remapsUsers: boolean;
  /** Runs in a virtual machine, which shares files but no sockets with us. */
  readonly virtualMachine: boolean;
  readonly limitsMemory: boolean;
  readonly limitsProcesses: boolean;
  readonly limitsProcessors: boolean;
  /** How many it has; it refuses a container that is to have more. */
  readonly processors: number;
}

const ASK_MS = 5_000;

/** Rejects with `sandbox_unavailable` when the engine does not answer. */
export async function askFacts(engine: EngineClient): Promise<EngineFacts> {
  const { status, body } = await engine.ask({ method: 'GET', path: '/info', timeoutMs: ASK_MS });
  if (status !== 200)
    throw new ReindeerError(
      'sandbox_unavailable',
      `The container engine at ${engine.socket} is in trouble: it answers ${status} to a question about itself.`,
      { retryable: true },
    );
  const options = at(body, 'SecurityOptions');
  const has = (name: string) => Array.isArray(options) && options.some((one) => String(one).includes(`name=${name}`));
  const rootless = has('rootless') || at(body, 'Rootless') === true;
  // Podman without root ignores limits under cgroup v1, and still names them.
  const ignored = rootless && String(at(body, 'CgroupVersion')) === '1';
  const limits = (name: string) => at(body, name) === true && !ignored;
  const system = String(at(body, 'OperatingSystem') ?? '');
  const processors = at(body, 'NCPU');
  const version = String(at(body, 'ServerVersion') ?? '').slice(0, 40);
  return {
    // Its socket may have Docker's name.
    name: `${at(body, 'BuildahVersion') === undefined ? 'Docker' : 'Podman'} ${version}`.trim(),
    rootless,
    remapsUsers: has('userns'),
    virtualMachine: process.platform !== 'linux' || system.includes('Docker Desktop'),
    limitsMemory: limits('MemoryLimit'),
    limitsProcesses: limits('PidsLimit'),
    limitsProcessors: limits('CpuCfsQuota'),
    processors: typeof processors === 'number' && processors > 0 ? processors : Number.MAX_SAFE_INTEGER,
  };
}

/** What holds for containers of ours on this engine; nothing that the engine does not enforce is claimed (D8). */
export function containerReport(
  settings: ContainerSettings,
  facts: EngineFacts | null,
  reason: string,
): IsolationReport {
  const mebibytes = (bytes: number) => `${Math.round(bytes / 1024 / 1024)} MiB`;
  if (facts === null)
    return {
      provider: 'container',
      canExecute: false,
      reason,
      remedy: 'start Docker or Podman, and let this user in at its socket; commands run as soon as it answers.',
      network: settings.network,
      limits: [],
    };
  const limited = (enforced: boolean) => (enforced ? 'cgroup' : null);
  return {
    provider: 'container',
    canExecute: true,
    network: settings.network,
    limits: [
      {
        name: 'identity',
        enforcedBy: 'container',
        value: 'no capabilities, no new privileges, read-only system',
        note: `${facts.name}${facts.rootless ? ', rootless' : ''}. Holds for images built from images/sandbox; others start with the few capabilities that their services need.`,
      },
      { name: 'system calls', enforcedBy: 'seccomp', value: 'the engine’s default profile' },
      {
        name: 'network',
        enforcedBy: 'network namespace',
        value: settings.network === 'none' ? 'none' : 'the engine’s bridge: the internet, not the host’s loopback',
      },
      { name: 'memory', enforcedBy: limited(facts.limitsMemory), value: mebibytes(settings.memoryBytes) },
      {
        name: 'processors',
        enforcedBy: limited(facts.limitsProcessors),
        value: String(Math.min(settings.cpus, facts.processors)),
      },
      { name: 'processes', enforcedBy: limited(facts.limitsProcesses), value: String(settings.processes) },
      settings.threadDataMounts
        ? {
            name: 'disk',
            enforcedBy: 'watchdog',
            value: mebibytes(settings.diskBytes),
            note: 'Looked at while commands run: a fast one can pass it for a moment before it is ended.',
          }
        : {
            name: 'disk',
            enforcedBy: null,
            value: mebibytes(settings.diskBytes),
            note: 'Files are carried: more than this is not read back, but a container may fill its own folders.',
          },
      { name: 'file size', enforcedBy: 'rlimit', value: mebibytes(settings.diskBytes) },
      { name: 'output', enforcedBy: 'reader', value: mebibytes(settings.outputBytes) },
      { name: 'time', enforcedBy: 'process kill', value: `${Math.round(settings.bashCommandTimeoutMs / 1000)} s` },
    ],
  };
}
