export { WORKSPACE_LIMITS, WorkspaceChangeWatch } from './changes/watch.ts';
export { createContainerProvider } from './container/factory.ts';
export type { ContainerSettings } from './container/settings.ts';
export { createSandboxProvider } from './create.ts';
export { replaceFile } from './files/replace-file.ts';
export { IGNORED_FOLDERS } from './files/search.ts';
export { type SkillFolders, skillFolders } from './folders.ts';
export { foreignUserId, safeUserId } from './identity.ts';
export { KeyedLock } from './keyed-lock.ts';
export { type ExitProcess, stopWithProcess } from './lifecycle/exit.ts';
export { type HeldProvider, ProviderHolder } from './lifecycle/holder.ts';
export { createLifecycleProvider } from './lifecycle/index.ts';
export { MemoryLeases, MemoryOwnershipStore } from './lifecycle/ownership/memory-store.ts';
export { newOwnerId, openOwnershipStore } from './lifecycle/ownership/open.ts';
export {
  leaseTtlMs,
  OWNERSHIP_TYPES,
  type OwnershipSettings,
  resolveOwnership,
} from './lifecycle/ownership/settings.ts';
export { DEFAULT_LIFECYCLE_SETTINGS, type LifecycleSettings } from './lifecycle/settings.ts';
export { SharedLeases } from './lifecycle/shared-leases.ts';
export { looksSecret } from './process/environment.ts';
export { ProcessGuard } from './process/guard.ts';
export { openProvisioner } from './provisioner/open.ts';
export { DEFAULT_PROVISIONER_PORT } from './provisioner/settings.ts';
export { createRemoteProvider } from './remote/factory.ts';
export type { ChangeSettings, SandboxSettings } from './settings.ts';
