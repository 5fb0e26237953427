import type { SandboxSettings } from '@reindeer/sandbox';
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
