import type { SandboxLifecycle } from '@reindeer/protocol';
import { dockerMissing, SANDBOX_CONTRACT_LIMITS, sandboxContract } from '@reindeer/testkit';
import { containerScene } from './testing/scene.ts';

const scene = containerScene();
let made: Promise<SandboxLifecycle> | null = null;
let provider: SandboxLifecycle | null = null;

sandboxContract('container', {
  missing: dockerMissing,
  acquire: async (threadId) => {
    made ??= scene().provider({ settings: SANDBOX_CONTRACT_LIMITS });
    provider = await made;
    return provider.acquire({ userId: 'default', threadId });
  },
  files: (threadId) => {
    if (provider === null) throw new Error('Acquire first.');
    return provider.files({ userId: 'default', threadId });
  },
});
