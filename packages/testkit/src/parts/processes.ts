import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';

/** A free TCP port of the loopback, as of now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const address = server.address();
  await new Promise<void>((resolve) => server.close(() => resolve()));
  if (typeof address !== 'object' || address === null) throw new Error('No TCP port is free.');
  return address.port;
}

/**
 * Runs a program for as long as its standard input stays open, and ends it then: so it also ends when this process is killed,
 * which no handler of ours would see. `wait` keeps the exit of the program from being taken for the end of the input.
 */
const KEEPER = 'exec 3<&0; "$@" </dev/null 3<&- & pid=$!; cat <&3 >/dev/null; kill -INT $pid 2>/dev/null; wait $pid';

export interface KeptProcess {
  readonly child: ChildProcess;
  /** What it wrote, newest part, at most 16 KiB. */
  output(): string;
  /** Ends it (`SIGINT`) and waits. Idempotent. */
  end(): Promise<void>;
}

/** Starts a program that must not outlive this process. */
export function keepProcess(
  command: readonly string[],
  options: { readonly cwd: string; readonly uid?: number; readonly gid?: number; readonly env?: NodeJS.ProcessEnv },
): KeptProcess {
  let text = '';
  const child = spawn('/bin/sh', ['-c', KEEPER, 'keeper', ...command], {
    stdio: ['pipe', 'pipe', 'pipe'],
    ...options,
  });
  const note = (chunk: Buffer): void => {
    text = (text + chunk.toString('utf8')).slice(-16_384);
  };
  child.stdout.on('data', note);
  child.stderr.on('data', note);
  child.stdin.on('error', () => {});
  const ended = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
    child.once('error', (error) => {
      text += String(error);
      resolve();
    });
  });
  return {
    child,
    output: () => text,
    end: () => {
      child.stdin.end();
      return ended;
    },
  };
}

/** Asks until `ready` answers true, for at most `patienceMs`. */
export async function waitUntil(ready: () => Promise<boolean>, patienceMs: number, what: () => string): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await ready())) {
    if (performance.now() > deadline) throw new Error(what());
    await new Promise<void>((resolve) => setTimeout(resolve, 30));
  }
}
