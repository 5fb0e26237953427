import type { LifecycleSettings, SandboxSettings } from '@reindeer/sandbox';
import type { Settings } from './config/settings.ts';

/** What the operator set below `sandbox:`, in the provider's own spelling and units. */
export function sandboxSettings({ sandbox }: Settings): Partial<SandboxSettings> {
  const defined = <K extends string, V>(key: K, value: V | undefined) => (value === undefined ? {} : { [key]: value });
  return {
    use: sandbox.provider,
    ...defined('allowHostBash', sandbox.allow_host_bash),
    ...defined(
      'bashCommandTimeoutMs',
      sandbox.bash_command_timeout === undefined ? undefined : sandbox.bash_command_timeout * 1000,
    ),
    ...defined('network', sandbox.network),
    ...defined('memoryBytes', sandbox.memory_limit),
    ...defined('processes', sandbox.pids_limit),
    ...defined('diskBytes', sandbox.disk_limit),
    ...defined('maxCommands', sandbox.max_commands),
    ...defined('environment', sandbox.environment),
  };
}

/** The same for sandboxes that live between turns: when they are stopped, how many there may be, how long a lease lives. */
export function sandboxLifecycleSettings({ sandbox, sandboxOwnership }: Settings): Partial<LifecycleSettings> {
  const defined = <K extends string, V>(key: K, value: V | undefined) => (value === undefined ? {} : { [key]: value });
  const milliseconds = (seconds: number | undefined) => (seconds === undefined ? undefined : seconds * 1000);
  return {
    renewalIntervalMs: sandboxOwnership.renewalIntervalMs,
    ttlMultiplier: sandboxOwnership.ttlMultiplier,
    ...defined('replicas', sandbox.replicas),
    ...defined('idleTimeoutMs', milliseconds(sandbox.idle_timeout)),
    ...defined('overflow', sandbox.overflow_policy),
    ...defined('acquireTimeoutMs', milliseconds(sandbox.acquire_timeout)),
    ...defined('burstLimit', sandbox.burst_limit),
  };
}
