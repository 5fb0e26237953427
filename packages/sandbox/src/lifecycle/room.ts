import { aborted, full } from './errors.ts';
import type { Core } from './parts.ts';
import type { Stops } from './stops.ts';

/**
 * Finds room for one more container. The count and the mark `create-began` are one step, so that two acquires never take the same
 * place. `replicas` is a soft bound: an active sandbox is never given up for a new one (SB-45).
 */
export async function takeRoom(core: Core, stops: Stops, id: string, signal: AbortSignal | undefined): Promise<void> {
  const { table, settings, surroundings } = core;
  const { replicas, overflow, burstLimit } = settings;
  const deadline = table.now + settings.acquireTimeoutMs;
  for (;;) {
    if (signal?.aborted) throw aborted();
    const count = table.count(id);
    if (count < replicas) break;
    // Asked for before the eviction, so that a change during it is not missed.
    const changed = table.nextChange();
    if (await stops.evictOldestWarm()) continue;
    if (overflow === 'burst' && (burstLimit === 0 || table.count(id) < replicas + burstLimit)) {
      surroundings.logger.warn('More sandboxes than sandbox.replicas are in use', { replicas, count: table.count(id) });
      break;
    }
    if (overflow !== 'wait') throw full(replicas);
    await waitFor(core, changed, deadline, signal);
  }
  table.apply(id, { type: 'create-began' });
}

async function waitFor(core: Core, changed: Promise<void>, deadline: number, signal: AbortSignal | undefined) {
  const left = deadline - core.table.now;
  if (left <= 0) throw full(core.settings.replicas);
  const over = new AbortController();
  const both = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]);
  try {
    await Promise.race([changed, core.surroundings.clock.sleep(left, both).catch(() => {})]);
  } finally {
    over.abort();
  }
}
