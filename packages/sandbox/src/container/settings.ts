import { isIP } from 'node:net';
import { ReindeerError } from '@reindeer/protocol';
import { checkConfiguredEnvironment } from '../process/environment.ts';
import { DEFAULT_SANDBOX_SETTINGS } from '../settings.ts';

/** A folder of the host that every container sees besides the thread's own (`sandbox.mounts`). */
export interface ContainerMount {
  /** Absolute; must exist when a container starts. */
  readonly hostPath: string;
  /** Absolute; not below a place that Reindeer mounts itself. */
  readonly containerPath: string;
  /** Default true. */
  readonly readOnly?: boolean;
}

/** What the operator may set for containers; the keys are those below `sandbox:` in the configuration, in our spelling. */
export interface ContainerSettings {
  /** `sandbox.image`. */
  readonly image: string;
  /** `sandbox.port`: where the server inside an image that is not ours listens. */
  readonly port: number;
  /** `sandbox.container_prefix`: two deployments on one engine need different ones. */
  readonly containerPrefix: string;
  /** Path of the engine's unix socket; null = `DOCKER_HOST`, `CONTAINER_HOST`, then the usual places of Docker and Podman. */
  readonly engineSocket: string | null;
  /**
   * `auto`: by a unix socket where the image holds our server and the engine shares sockets with this machine, else by a published port.
   * `port`: always by a port, for an engine in a virtual machine that does not say so.
   */
  readonly transport: 'auto' | 'port';
  /** Address of the host at which ports are published. */
  readonly bindHost: string;
  /**
   * `none`: no network but the container's own loopback. `bridge`: the engine's default network, with the internet but without the host's
   * loopback. An image that is not ours is reached by a published port, which needs `bridge`.
   */
  readonly network: 'none' | 'bridge';
  /** Memory of one container, in bytes; swap is off. */
  readonly memoryBytes: number;
  /** Cores of one container. */
  readonly cpus: number;
  /** Processes and threads of one container. */
  readonly processes: number;
  /** Disk space of one thread's folders and the largest single file, in bytes. */
  readonly diskBytes: number;
  /** Most milliseconds one command may take; a request may ask for less. */
  readonly bashCommandTimeoutMs: number;
  /** Bytes of output kept of one command; more is read and dropped. */
  readonly outputBytes: number;
  /** Bytes of output after which a command is ended. */
  readonly outputEndBytes: number;
  /** Commands that may run at once in one container; more are refused with `over_capacity`. */
  readonly maxCommands: number;
  /** Added to the environment of every command; values are resolved by the caller. Never in logs or labels. */
  readonly environment: Readonly<Record<string, string>>;
  readonly mounts: readonly ContainerMount[];
  /**
   * `sandbox.thread_data_mounts`: are a thread's folders mounted in its sandbox? Without it they are carried there and back, for an engine
   * that does not see the data folder under the same path.
   */
  readonly threadDataMounts: boolean;
}

export const DEFAULT_CONTAINER_SETTINGS: ContainerSettings = {
  image: 'reindeer-sandbox:latest',
  port: 8080,
  containerPrefix: 'reindeer-sandbox',
  engineSocket: null,
  transport: 'auto',
  bindHost: '127.0.0.1',
  network: 'none',
  memoryBytes: DEFAULT_SANDBOX_SETTINGS.memoryBytes,
  cpus: 2,
  processes: DEFAULT_SANDBOX_SETTINGS.processes,
  diskBytes: DEFAULT_SANDBOX_SETTINGS.diskBytes,
  bashCommandTimeoutMs: DEFAULT_SANDBOX_SETTINGS.bashCommandTimeoutMs,
  outputBytes: DEFAULT_SANDBOX_SETTINGS.outputBytes,
  outputEndBytes: DEFAULT_SANDBOX_SETTINGS.outputEndBytes,
  maxCommands: 16,
  environment: {},
  mounts: [],
  threadDataMounts: true,
};

const MIB = 1024 * 1024;
/** The places inside a container that Reindeer itself fills. */
const RESERVED = ['/mnt/user-data', '/mnt/skills', '/run/reindeer', '/opt/reindeer', '/proc', '/sys', '/dev'];
/** The same, but other folders may lie in them. */
const FILLED = ['/tmp', '/var/tmp', '/etc/passwd'];

/** What may change while the provider lives: containers that are made from then on have it, and commands at once. */
export const LIVE_CONTAINER_SETTINGS = [
  'bashCommandTimeoutMs',
  'memoryBytes',
  'processes',
  'cpus',
  'diskBytes',
  'maxCommands',
  'environment',
] as const;

/** Throws `configuration`, naming the key, for settings that cannot be kept. */
export function checkContainerSettings(settings: ContainerSettings): void {
  const fault = (text: string) => new ReindeerError('configuration', `sandbox: ${text}`);
  if (!/^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$/.test(settings.image))
    throw fault('image must be the name of a container image, such as reindeer-sandbox:latest.');
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/.test(settings.containerPrefix))
    throw fault('container_prefix must be 1 to 64 letters, digits, ".", "_" or "-", and begin with a letter or digit.');
  if (!(Number.isInteger(settings.port) && settings.port > 0 && settings.port < 65_536))
    throw fault('port must be a port number.');
  if (!(Number.isFinite(settings.cpus) && settings.cpus >= 0.01)) throw fault('cpus must be at least 0.01.');
  if (!(settings.memoryBytes >= 64 * MIB)) throw fault('memory_limit must be at least 64 MiB for a container.');
  if (!(Number.isSafeInteger(settings.processes) && settings.processes >= 32))
    throw fault('pids_limit must be at least 32 for a container.');
  for (const name of ['diskBytes', 'bashCommandTimeoutMs', 'outputBytes', 'outputEndBytes', 'maxCommands'] as const)
    if (!(Number.isSafeInteger(settings[name]) && settings[name] > 0))
      throw fault(`${name} must be a whole number above 0.`);
  if (settings.outputEndBytes < settings.outputBytes) throw fault('outputEndBytes must not be less than outputBytes.');
  if (isIP(settings.bindHost) === 0)
    throw fault('bind_host must be an address of this machine in numbers, as in 127.0.0.1 or ::1.');
  checkConfiguredEnvironment(settings.environment);
  checkMounts(settings.mounts, fault);
}

function checkMounts(mounts: readonly ContainerMount[], fault: (text: string) => ReindeerError): void {
  const seen = new Set<string>();
  for (const [index, { hostPath, containerPath }] of mounts.entries()) {
    const key = `mounts[${index}]`;
    for (const [name, path] of [
      ['host_path', hostPath],
      ['container_path', containerPath],
    ] as const)
      if (!path.startsWith('/') || path.includes('\0') || path.split('/').includes('..'))
        throw fault(`${key}.${name} must be an absolute path without "..".`);
    const inside = containerPath.replace(/\/+/g, '/').replace(/\/$/, '');
    if (inside === '') throw fault(`${key}.container_path must not be the root folder.`);
    const taken =
      FILLED.find((place) => inside === place) ??
      RESERVED.find((place) => inside === place || inside.startsWith(`${place}/`) || place.startsWith(`${inside}/`));
    if (taken !== undefined) throw fault(`${key}.container_path must not touch ${taken}, which Reindeer fills itself.`);
    if (seen.has(inside)) throw fault(`${key}.container_path ${inside} is mounted twice.`);
    seen.add(inside);
  }
}
