import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { SandboxProvider } from '@reindeer/protocol';
import { realSurroundings, SANDBOX_CONTRACT_LIMITS, sandboxContract } from '@reindeer/testkit';
import { afterAll, beforeAll } from 'vitest';
import { createSandboxProvider } from '../create.ts';

let home = '';
let provider: SandboxProvider;
beforeAll(async () => {
  home = await mkdtemp(`${tmpdir()}/reindeer-bubblewrap-`);
  provider = await createSandboxProvider({
    settings: SANDBOX_CONTRACT_LIMITS,
    home,
    surroundings: realSurroundings(),
    environment: process.env,
  });
});
afterAll(async () => {
  await provider.shutdown();
  await rm(home, { recursive: true, force: true });
});

sandboxContract('bubblewrap', {
  missing: async () => {
    const { canExecute, reason, remedy } = provider.report();
    return canExecute ? null : `no bubblewrap here: ${reason ?? ''} (${remedy ?? ''})`;
  },
  acquire: (threadId) => provider.acquire({ userId: 'default', threadId }),
  files: (threadId) => provider.files({ userId: 'default', threadId }),
});
