import { readFile } from 'node:fs/promises';

/** Memory that this machine could still give to new processes, in bytes; null where the system does not tell. */
export async function availableMemory(file = '/proc/meminfo'): Promise<number | null> {
  const text = await readFile(file, 'utf8').catch(() => '');
  const kibibytes = /^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1];
  return kibibytes === undefined ? null : Number(kibibytes) * 1024;
}
