import { SKILLS_ROOT, VIRTUAL_FOLDERS, VIRTUAL_ROOT } from '@reindeer/protocol';
import type { ThreadPaths } from '../folders.ts';
import type { ContainerSettings } from './settings.ts';

/** What the engine can do here, and how the server in an image is reached. */
export interface SpecInput {
  readonly settings: ContainerSettings;
  readonly paths: ThreadPaths;
  /** Private folder of this one container: secret, socket, account file; null = nothing of the data folder is mounted. */
  readonly runFolder: string | null;
  /** SHA-256 of the secret, for a server that gets no file. */
  readonly secretHash: string;
  /** `uid:gid` of every process; null = as the image says. */
  readonly user: string | null;
  readonly transport: 'socket' | 'port';
  /** Must the engine be told to leave user ids as they are? */
  readonly hostUsers: boolean;
  /** Is our server in the image? */
  readonly own: boolean;
  /** Port of the host to publish; 0 = one that the engine chooses; unused with a socket. */
  readonly hostPort: number;
  /** How many the engine has. */
  readonly processors: number;
  readonly labels: Readonly<Record<string, string>>;
}

/** Where the run folder lies in the container. */
const RUN_PLACE = '/run/reindeer';
export const SOCKET_NAME = 'server.sock';
/** Port of our own server, where it is reached by one. */
export const OWN_PORT = 8080;

const SHARED_MEMORY_BYTES = 64 * 1024 * 1024;
const OPEN_FILES = 8_192;
/** What an image that is not ours wants in order to start its services; none of them reaches the host. */
const FOREIGN_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'];

/**
 * The body of a create request. Nothing in it is secret: the secret is a file in the run folder, or only its hash is told, and variables of
 * the operator travel with each command.
 */
export function containerSpec(input: SpecInput): unknown {
  const { settings, own, transport } = input;
  const port = own ? OWN_PORT : settings.port;
  return {
    Image: settings.image,
    Hostname: 'sandbox',
    ...(input.user === null ? {} : { User: input.user }),
    Env: own
      ? [
          input.runFolder === null
            ? `REINDEER_SECRET_SHA256=${input.secretHash}`
            : `REINDEER_SECRET_FILE=${RUN_PLACE}/secret`,
          ...(transport === 'socket' ? [`REINDEER_SOCKET=${RUN_PLACE}/${SOCKET_NAME}`] : [`REINDEER_PORT=${port}`]),
        ]
      : [],
    ...(own ? { WorkingDir: `${VIRTUAL_ROOT}/workspace` } : {}),
    Labels: input.labels,
    Tty: false,
    OpenStdin: false,
    StopTimeout: 2,
    ...(transport === 'port' ? { ExposedPorts: { [`${port}/tcp`]: {} } } : {}),
    HostConfig: {
      // Two deployments' containers never meet: no shared network of our making, nothing but the engine's default one.
      NetworkMode: settings.network === 'none' ? 'none' : 'default',
      ...(transport === 'port'
        ? {
            PortBindings: {
              [`${port}/tcp`]: [
                { HostIp: settings.bindHost, HostPort: input.hostPort === 0 ? '' : String(input.hostPort) },
              ],
            },
          }
        : {}),
      Mounts: mountsOf(input),
      AutoRemove: true,
      RestartPolicy: { Name: '' },
      Privileged: false,
      CapDrop: ['ALL'],
      ...(own ? {} : { CapAdd: FOREIGN_CAPABILITIES }),
      SecurityOpt: ['no-new-privileges'],
      ReadonlyRootfs: own,
      IpcMode: 'private',
      ...(input.hostUsers ? { UsernsMode: 'host' } : {}),
      ShmSize: SHARED_MEMORY_BYTES,
      Memory: settings.memoryBytes,
      // The same: no swap, so that memory is what was said.
      MemorySwap: settings.memoryBytes,
      NanoCpus: Math.round(Math.min(settings.cpus, input.processors) * 1e9),
      PidsLimit: settings.processes,
      Ulimits: [
        { Name: 'fsize', Soft: settings.diskBytes, Hard: settings.diskBytes },
        { Name: 'core', Soft: 0, Hard: 0 },
        { Name: 'nofile', Soft: OPEN_FILES, Hard: OPEN_FILES },
      ],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '1m', 'max-file': '1' } },
    },
  };
}

/** The thread's folders at their virtual paths; uploads can be read, not changed. The first mount of a place counts. */
function mountsOf({ paths, runFolder, settings, own, user }: SpecInput): readonly unknown[] {
  const bind = (Source: string, Target: string, ReadOnly: boolean) => ({
    Type: 'bind',
    Source,
    Target,
    ReadOnly,
    BindOptions: { Propagation: 'rprivate' },
  });
  const extra = settings.mounts.map(({ hostPath, containerPath, readOnly }) =>
    bind(hostPath, containerPath, readOnly ?? true),
  );
  if (runFolder === null) {
    // Folders of the container's own, which go with it; the rest of the system is read-only.
    const places = [...VIRTUAL_FOLDERS.map((name) => `${VIRTUAL_ROOT}/${name}`), SKILLS_ROOT, '/tmp', '/var/tmp'];
    return [...places.map((Target) => ({ Type: 'volume', Target })), ...extra];
  }
  return [
    ...VIRTUAL_FOLDERS.map((name) => bind(paths.folders[name], `${VIRTUAL_ROOT}/${name}`, name === 'uploads')),
    bind(paths.skills, SKILLS_ROOT, true),
    // Both, as in bubblewrap; Podman would fill the second with a writable place of its own.
    ...(own ? ['/tmp', '/var/tmp'].map((place) => bind(paths.folders.temporary, place, false)) : []),
    ...(own ? [bind(runFolder, RUN_PLACE, false)] : []),
    ...(own && user !== null ? [bind(`${runFolder}/passwd`, '/etc/passwd', true)] : []),
    ...extra,
  ];
}
