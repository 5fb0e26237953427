import { each } from '../lifecycle/maintenance.ts';
import type { ContainerInfo } from './description.ts';
import type { EngineClient } from './engine.ts';
import { at } from './listing.ts';

const STATS_MS = 5_000;
/** Engines measure while they answer. */
const AT_ONCE = 8;

/** Bytes of memory that containers use, by sandbox id, without the page cache that the kernel would give back. Never rejects. */
export async function memoryOf(
  engine: Pick<EngineClient, 'ask'>,
  containers: readonly ContainerInfo[],
): Promise<ReadonlyMap<string, number>> {
  const found = new Map<string, number>();
  await each(containers, AT_ONCE, async ({ id, containerId }) => {
    const path = `/containers/${containerId}/stats?stream=false&one-shot=true`;
    const answer = await engine.ask({ method: 'GET', path, timeoutMs: STATS_MS }).catch(() => null);
    const memory = at(answer?.body, 'memory_stats');
    const usage = at(memory, 'usage');
    if (answer?.status !== 200 || typeof usage !== 'number') return;
    const stats = at(memory, 'stats');
    // By the name of either version of cgroups.
    const cache = at(stats, 'inactive_file') ?? at(stats, 'total_inactive_file');
    found.set(id, Math.max(0, usage - (typeof cache === 'number' ? cache : 0)));
  });
  return found;
}
