import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { createLifecycleProvider, MemoryLeases, MemoryOwnershipStore, SharedLeases } from '@reindeer/sandbox';
import { NO_STORAGE, SimulatedEngine } from '@reindeer/testkit';
import type { Row } from './lib.ts';

const THREADS = 100;
const CYCLES = 1_000;
const AT_ONCE = 20;
const TTL_MS = 60_000;

/**
 * A thousand turns on a hundred threads, twenty at a time, over a simulated engine: what the lifecycle itself costs per turn, and what it
 * leaves in maps, handles and containers. The same over real containers, fewer of them: `containers`.
 */
export async function lifecycleRows(): Promise<readonly Row[]> {
  const surroundings = { ...systemSurroundings(), logger: NO_LOG };
  const { clock } = surroundings;
  const engine = new SimulatedEngine(clock);
  const leases = new MemoryLeases(clock, TTL_MS);
  const handles = process.getActiveResourcesInfo().length;
  const provider = createLifecycleProvider({
    backend: engine.backend(),
    ownership: new MemoryOwnershipStore({ ownerId: 'bench', clock, ttlMs: TTL_MS, leases }),
    storage: NO_STORAGE,
    surroundings,
    settings: { replicas: 30 },
  });
  await provider.start();
  const shared = new SharedLeases(provider, NO_LOG);
  const { signal } = new AbortController();
  let next = 0;
  const lane = async (): Promise<void> => {
    for (let turn = next++; turn < CYCLES; turn = next++) {
      const owner = `run-${turn}`;
      const sandbox = await shared.hold({ userId: 'u', threadId: `t${turn % THREADS}`, owner, signal });
      await sandbox.exec({ command: 'true', timeoutMs: 1_000 });
      await shared.leave(owner);
    }
  };
  const begun = performance.now();
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  const turnMs = (performance.now() - begun) / CYCLES;
  await provider.shutdown();
  const maps = Object.values({ ...provider.sizes(), ...shared.sizes() }).reduce((sum, size) => sum + size, leases.size);
  const clients = engine.clients.filter(({ closed }) => !closed).length;
  const more = Math.max(0, process.getActiveResourcesInfo().length - handles);
  return [
    {
      name: `sandbox lifecycle: left behind by ${CYCLES} turns on ${THREADS} threads after the stop`,
      value: maps + clients + more + engine.containers.size,
      unit: 'pieces',
      against: 'nothing',
      target: '<= 0',
      alarm: '<= 0',
      detail: { maps, clients, handles: more, containers: engine.containers.size, msPerTurn: turnMs },
    },
  ];
}
