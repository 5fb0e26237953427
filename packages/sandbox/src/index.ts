export { type CreateSandboxProvider, createSandboxProvider } from './create.ts';
export { IGNORED_FOLDERS } from './files/search.ts';
export { safeUserId } from './identity.ts';
export { KeyedLock } from './keyed-lock.ts';
export { looksSecret } from './process/environment.ts';
export { DEFAULT_SANDBOX_SETTINGS, type SandboxSettings } from './settings.ts';
