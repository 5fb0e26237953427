import { readFile } from 'node:fs/promises';

/** Where the kernel counts how often it killed something here for want of memory: cgroup v2, then v1. */
const PLACES = ['/sys/fs/cgroup/memory.events', '/sys/fs/cgroup/memory/memory.oom_control'];

/** How often the kernel has ended a process of this container for want of memory; null when that cannot be read here. */
export async function memoryKills(): Promise<number | null> {
  for (const place of PLACES) {
    const text = await readFile(place, 'utf8').catch(() => null);
    const count = text === null ? null : /^oom_kill (\d+)$/m.exec(text);
    if (count !== null) return Number(count[1]);
  }
  return null;
}
