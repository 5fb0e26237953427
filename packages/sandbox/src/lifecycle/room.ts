import { aborted, full, noMemory } from './errors.ts';
import type { Core } from './parts.ts';
import type { Stops } from './stops.ts';

/** Memory comes free without any sign of it: a wait for it looks again this often, in milliseconds. */
const MEMORY_LOOK_MS = 1_000;

/**
 * Finds room for one more container. The count and the mark `create-began` are one step, so that two acquires never take the same
 * place. `replicas` is a soft bound: an active sandbox is never given up for a new one (SB-45). Memory is a hard one: a burst does not
 * pass it either.
 */
export async function takeRoom(core: Core, stops: Stops, id: string, signal: AbortSignal | undefined): Promise<void> {
  const { table, settings, surroundings } = core;
  const { replicas, overflow, burstLimit } = settings;
  const deadline = table.now + settings.acquireTimeoutMs;
  for (;;) {
    const free = await freeMemory(core);
    if (signal?.aborted) throw aborted();
    // From here to the mark there is no wait: those who start meanwhile are counted.
    const short = free < settings.memoryReserveBytes * (table.starting + 1);
    if (!short && table.count(id) < replicas) break;
    // Asked for before the eviction, so that a change during it is not missed.
    const changed = table.nextChange();
    if (await stops.evictOldestWarm()) continue;
    if (overflow === 'burst' && !short && (burstLimit === 0 || table.count(id) < replicas + burstLimit)) {
      surroundings.logger.warn('More sandboxes than sandbox.replicas are in use', { replicas, count: table.count(id) });
      break;
    }
    const refusal = short ? noMemory() : full(replicas);
    if (overflow !== 'wait' || table.now >= deadline) throw refusal;
    const left = deadline - table.now;
    await waitFor(core, changed, short ? Math.min(left, MEMORY_LOOK_MS) : left, signal);
  }
  table.apply(id, { type: 'create-began' });
}

/** A machine that does not tell is no reason to refuse. */
async function freeMemory(core: Core): Promise<number> {
  if (core.settings.memoryReserveBytes === 0) return Number.POSITIVE_INFINITY;
  return (await core.availableMemory()) ?? Number.POSITIVE_INFINITY;
}

async function waitFor(core: Core, changed: Promise<void>, milliseconds: number, signal: AbortSignal | undefined) {
  const over = new AbortController();
  const both = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]);
  try {
    await Promise.race([changed, core.surroundings.clock.sleep(milliseconds, both).catch(() => {})]);
  } finally {
    over.abort();
  }
}
