// From acquire to the end of the first command, against a bare bwrap with the same system folders. Arguments: ROUNDS
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { NO_LOG } from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { createSandboxProvider } from '@reindeer/sandbox';

const rounds = Number(process.argv[2]);
const home = await mkdtemp(join(tmpdir(), 'reindeer-bench-'));
const provider = await createSandboxProvider({
  home,
  surroundings: systemSurroundings({ logger: NO_LOG }),
  environment: process.env,
});
const bare: number[] = [];
const ours: number[] = [];
if (provider.report().canExecute) {
  const binds = ['/usr', '/bin', '/lib', '/lib64'].flatMap((folder) => ['--ro-bind-try', folder, folder]);
  const args = [
    ...binds,
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    '--tmpfs',
    '/tmp',
    '--unshare-all',
    '--die-with-parent',
    '--new-session',
    '--clearenv',
    'bash',
    '-c',
    'true',
  ];
  for (let round = -5; round < rounds; round += 1) {
    let begun = performance.now();
    await new Promise<void>((resolve, reject) =>
      execFile('bwrap', args, (error) => (error === null ? resolve() : reject(error))),
    );
    if (round >= 0) bare.push(performance.now() - begun);
    begun = performance.now();
    const sandbox = await provider.acquire({ userId: 'default', threadId: `bench-${round}` });
    const result = await sandbox.exec({ command: 'true', timeoutMs: 10_000 });
    if (result.exitCode !== 0) throw new Error(`the command ended with ${result.exitCode}: ${result.output}`);
    if (round >= 0) ours.push(performance.now() - begun);
    await provider.release(sandbox.id);
  }
}
await provider.shutdown();
await rm(home, { recursive: true, force: true });
process.stdout.write(`${JSON.stringify({ ours, bare, reason: provider.report().reason ?? null })}\n`);
process.exit(0);
