import { readdir, readFile } from 'node:fs/promises';

/** The processes of this machine whose arguments hold a text, as any user of it could see. Linux. */
export async function processesThatShow(text: string): Promise<string[]> {
  const found: string[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const line = await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '');
    if (line.includes(text)) found.push(`${name}: ${line.replaceAll('\0', ' ').slice(0, 200)}`);
  }
  return found;
}
