import type { CoreToolSettings } from '@reindeer/agent';
import { type ContainerSettings, type LifecycleSettings, leaseTtlMs, type SandboxSettings } from '@reindeer/sandbox';
import { defined, milliseconds } from './config/readers.ts';
import type { Settings } from './config/settings.ts';
import type { Variables } from './config/substitute.ts';

/** What a tool may answer, in characters; 0 in the file = without a limit (SL-18). */
export function outputLimits({ sandbox }: Pick<Settings, 'sandbox'>): Partial<CoreToolSettings> {
  const limit = <K extends keyof CoreToolSettings>(key: K, value: number | undefined) =>
    value === undefined ? {} : { [key]: value === 0 ? Number.MAX_SAFE_INTEGER : value };
  return {
    ...limit('bashMaxOutputCharacters', sandbox.bash_output_max_chars),
    ...limit('readFileMaxCharacters', sandbox.read_file_output_max_chars),
    ...limit('listMaxCharacters', sandbox.ls_output_max_chars),
  };
}

/** What the operator set below `sandbox:`, in the provider's own spelling and units. */
export function sandboxSettings({ sandbox }: Settings): Partial<SandboxSettings> {
  return {
    use: sandbox.provider === 'local' ? 'local' : 'bubblewrap',
    ...defined('allowHostBash', sandbox.allow_host_bash),
    ...defined('bashCommandTimeoutMs', milliseconds(sandbox.bash_command_timeout, null)),
    ...defined('network', sandbox.network === 'bridge' ? undefined : sandbox.network),
    ...defined('memoryBytes', sandbox.memory_limit),
    ...defined('processes', sandbox.pids_limit),
    ...defined('diskBytes', sandbox.disk_limit),
    ...defined('maxCommands', sandbox.max_commands),
    ...defined('environment', sandbox.environment),
  };
}

const MIB = 1024 * 1024;
/** What a new container must find available on this machine, unless the operator says otherwise. */
const MEMORY_RESERVE = 256 * MIB;

/** The same for containers. */
export function containerSettings({ sandbox }: Settings): Partial<ContainerSettings> {
  return {
    ...defined('image', sandbox.image),
    ...defined('port', sandbox.port),
    ...defined('containerPrefix', sandbox.container_prefix),
    ...defined('engineSocket', sandbox.engine_socket),
    ...defined('bindHost', sandbox.bind_host),
    ...defined('transport', sandbox.transport),
    ...defined('threadDataMounts', sandbox.thread_data_mounts),
    ...defined('network', sandbox.network === 'host' ? undefined : sandbox.network),
    ...defined('memoryBytes', sandbox.memory_limit),
    ...defined('cpus', sandbox.cpus),
    ...defined('processes', sandbox.pids_limit),
    ...defined('diskBytes', sandbox.disk_limit),
    ...defined('bashCommandTimeoutMs', milliseconds(sandbox.bash_command_timeout, null)),
    ...defined('maxCommands', sandbox.max_commands),
    ...defined('environment', sandbox.environment),
    ...defined(
      'mounts',
      sandbox.mounts?.map(({ host_path, container_path, read_only }) => ({
        hostPath: host_path,
        containerPath: container_path,
        ...defined('readOnly', read_only),
      })),
    ),
  };
}

/** Which provisioner starts the sandboxes; null = an engine of this machine does. */
export function provisionerOf(
  { sandbox }: Settings,
  variables: Variables,
): { readonly url: string; readonly apiKey: string } | null {
  if (sandbox.provisioner_url == null) return null;
  return { url: sandbox.provisioner_url, apiKey: sandbox.provisioner_api_key ?? variables.PROVISIONER_API_KEY ?? '' };
}

const LONGEST_SWEEP_MS = 60_000;
const SHORTEST_SWEEP_MS = 500;

/** Often enough that an orphan is seen twice within a lease, and an idle sandbox goes within half a timeout more. */
function sweepMs(leaseMs: number, idleMs: number | undefined): number {
  const half = Math.min(leaseMs, idleMs === undefined || idleMs === 0 ? leaseMs : idleMs) / 2;
  return Math.min(LONGEST_SWEEP_MS, Math.max(SHORTEST_SWEEP_MS, half));
}

/** The same for sandboxes that live between turns: when they are stopped, how many there may be, how long a lease lives. */
export function sandboxLifecycleSettings({ sandbox, sandboxOwnership }: Settings): Partial<LifecycleSettings> {
  const idleMs = milliseconds(sandbox.idle_timeout, undefined);
  return {
    renewalIntervalMs: sandboxOwnership.renewalIntervalMs,
    ttlMultiplier: sandboxOwnership.ttlMultiplier,
    ...defined('replicas', sandbox.replicas),
    ...defined('idleTimeoutMs', idleMs),
    ...defined('overflow', sandbox.overflow_policy),
    ...defined('acquireTimeoutMs', milliseconds(sandbox.acquire_timeout, undefined)),
    ...defined('burstLimit', sandbox.burst_limit),
    memoryReserveBytes: sandbox.memory_reserve ?? MEMORY_RESERVE,
    sweepMs: sweepMs(leaseTtlMs(sandboxOwnership), idleMs),
  };
}
