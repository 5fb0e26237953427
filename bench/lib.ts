import { type ChildProcess, fork, spawn } from 'node:child_process';
import { join } from 'node:path';

/** One line of the report. Ratios only compare things measured in the same run on the same machine. */
export interface Row {
  readonly name: string;
  readonly value: number;
  readonly unit: 'ratio' | 'ms' | 'MiB' | 'statements' | 'containers' | 'pieces';
  /** What the value is compared with. */
  readonly against: string;
  /** As text, e.g. `<= 1.5`; null = information only. */
  readonly target: string | null;
  readonly alarm: string | null;
  readonly detail?: Readonly<Record<string, unknown>>;
}

const child = (name: string) => join(import.meta.dirname, 'child', name);

export const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
};

/** Runs a child program to its end and reads the JSON that it prints. */
export function measure<T>(name: string, args: readonly string[]): Promise<T> {
  return new Promise((resolve, reject) => {
    const running = spawn(process.execPath, [child(name), ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
    let output = '';
    running.stdout.on('data', (chunk) => {
      output += chunk;
    });
    running.once('error', reject);
    running.once('exit', (code) =>
      code === 0 ? resolve(JSON.parse(output)) : reject(new Error(`${name} ${args.join(' ')} ended with ${code}`)),
    );
  });
}

export interface ServerFigures {
  readonly cpuMs: number;
  readonly delayP99Ms: number;
  readonly rssMiB: number;
}

export interface BenchServer {
  readonly url: string;
  figures(reset?: boolean): Promise<ServerFigures>;
  stop(): Promise<void>;
}

/** Starts a server child and waits for its port. */
export async function startServer(name: string, args: readonly string[]): Promise<BenchServer> {
  const running: ChildProcess = fork(child(name), args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const answer = <T>() =>
    new Promise<T>((resolve, reject) => {
      running.once('message', (message) => resolve(message as T));
      running.once('exit', (code) => reject(new Error(`${name} ended with ${code}`)));
    });
  const { port } = await answer<{ port: number }>();
  return {
    url: `http://127.0.0.1:${port}`,
    figures: (reset = false) => {
      const figures = answer<ServerFigures>();
      running.send(reset ? 'reset' : 'read');
      return figures;
    },
    stop: () =>
      new Promise((resolve) => {
        running.removeAllListeners('exit');
        running.once('exit', () => resolve());
        running.kill('SIGKILL');
      }),
  };
}

/** Holds a value against a limit such as `<= 1.5`. */
export function holds(value: number, limit: string): boolean {
  const [operator, number] = limit.split(' ');
  return operator === '<=' ? value <= Number(number) : value >= Number(number);
}
