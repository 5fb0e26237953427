export { WORKSPACE_LIMITS, WorkspaceChangeWatch, type WorkspaceLimits } from './changes/watch.ts';
export { type CreateContainerProvider, createContainerProvider } from './container/factory.ts';
export {
  type ContainerMount,
  type ContainerSettings,
  DEFAULT_CONTAINER_SETTINGS,
} from './container/settings.ts';
export { type CreateSandboxProvider, createSandboxProvider } from './create.ts';
export { replaceFile } from './files/replace-file.ts';
export { IGNORED_FOLDERS } from './files/search.ts';
export { type SkillFolders, skillFolders } from './folders.ts';
export { foreignUserId, safeUserId } from './identity.ts';
export { KeyedLock } from './keyed-lock.ts';
export { type ExitParts, type ExitProcess, stopWithProcess } from './lifecycle/exit.ts';
export { type HeldProvider, ProviderHolder } from './lifecycle/holder.ts';
export { createLifecycleProvider } from './lifecycle/index.ts';
export { MemoryLeases, type MemoryOwnershipOptions, MemoryOwnershipStore } from './lifecycle/ownership/memory-store.ts';
export { newOwnerId, openOwnershipStore } from './lifecycle/ownership/open.ts';
export { openRedisOwnership, type RedisOwnershipOptions } from './lifecycle/ownership/redis-store.ts';
export {
  leaseTtlMs,
  OWNERSHIP_TYPES,
  type OwnershipConfiguration,
  type OwnershipSettings,
  type OwnershipSources,
  type OwnershipType,
  resolveOwnership,
} from './lifecycle/ownership/settings.ts';
export type { LifecycleParts, ThreadStorage } from './lifecycle/parts.ts';
export { DEFAULT_LIFECYCLE_SETTINGS, type LifecycleSettings, type OverflowPolicy } from './lifecycle/settings.ts';
export { type HoldInput, SharedLeases } from './lifecycle/shared-leases.ts';
export { storageOf } from './lifecycle/storage.ts';
export { looksSecret } from './process/environment.ts';
export { ProcessGuard } from './process/guard.ts';
export { openProvisioner } from './provisioner/open.ts';
export { DEFAULT_PROVISIONER_PORT } from './provisioner/settings.ts';
export { type CreateRemoteProvider, createRemoteProvider } from './remote/factory.ts';
export { type ChangeSettings, DEFAULT_SANDBOX_SETTINGS, type SandboxSettings } from './settings.ts';
