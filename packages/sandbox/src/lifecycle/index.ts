import type { SandboxLifecycle } from '@reindeer/protocol';
import type { LifecycleParts } from './parts.ts';
import { LifecycleProvider } from './provider.ts';

/**
 * The provider for sandboxes that run between turns, over any backend and ownership store. Call `start` once it may adopt what an
 * earlier process left.
 *
 * @throws ReindeerError `configuration` for settings that cannot be kept
 */
export function createLifecycleProvider(parts: LifecycleParts): SandboxLifecycle & Pick<LifecycleProvider, 'sizes'> {
  return new LifecycleProvider(parts);
}
