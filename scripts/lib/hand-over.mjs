import { spawn } from 'node:child_process';
import { environmentFor } from './toolchain.mjs';

/**
 * Continues as another process: same terminal, its exit code. Signals from outside are passed on; a terminal's Ctrl-C reaches
 * the child by itself, as a member of the foreground group, so here it is only kept from ending this process first.
 */
export async function handOver(node, args) {
  const child = spawn(node, args, { stdio: 'inherit', env: environmentFor(node) });
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']) {
    process.on(signal, () => {
      if (signal !== 'SIGINT' || !process.stdin.isTTY) child.kill(signal);
    });
  }
  process.exitCode = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 1));
  });
}
