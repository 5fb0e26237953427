import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { uptime } from 'node:os';
import { promisify } from 'node:util';
import type { Clock } from '@reindeer/protocol';

/**
 * Identity of the machine's present boot: the same for all processes until the machine is started again. Where the system has no
 * such id, the time of the boot in seconds as `time:<n>`, which moves with corrections of the clock.
 */
export async function readBootId(clock: Clock): Promise<string> {
  if (process.platform === 'linux') {
    const id = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
    if (id.trim() !== '') return id.trim();
  }
  if (process.platform === 'darwin') {
    const id = await promisify(execFile)('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], { timeout: 2000 }).then(
      ({ stdout }) => stdout.trim(),
      () => '',
    );
    if (id !== '') return id;
  }
  return `time:${Math.round(clock.now() / 1000 - uptime())}`;
}
