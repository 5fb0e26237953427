import { spawn } from 'node:child_process';
import { realClock } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { isGone, kill, pollUntil } from '../process/signals.ts';
import { endOrphans, markOf } from './orphans.ts';

test('ends what a killed server left, and nothing that somebody looks after', async (context) => {
  if (process.platform !== 'linux') context.skip('no /proc here');
  const mark = markOf(`/test/${process.pid}`);
  // A parent of another kind that dies at once leaves its child to the system, as a killed server does.
  const parent = spawn('bash', ['-c', `exec -a ${mark} sleep 300 & echo $!; exit`], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const printed = new Promise<string>((resolve) =>
    parent.stdout.once('data', (chunk: Buffer) => resolve(chunk.toString())),
  );
  const over = new Promise<void>((resolve) => parent.once('exit', () => resolve()));
  const orphan = Number(await printed);
  await over;
  const ours = spawn('sleep', ['300'], { argv0: mark, stdio: 'ignore' });
  const other = spawn('sleep', ['300'], { argv0: markOf('/another/home'), stdio: 'ignore' });
  try {
    expect(await endOrphans(mark)).toBe(1);
    expect(await pollUntil(realClock, 5_000, () => isGone(orphan, null))).toBe(true);
    expect(await isGone(ours.pid ?? 0, null)).toBe(false);
    expect(await isGone(other.pid ?? 0, null)).toBe(false);
  } finally {
    kill(orphan);
    ours.kill('SIGKILL');
    other.kill('SIGKILL');
  }
});
