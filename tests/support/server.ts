import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from '@langchain/langgraph-sdk';

/** The program: from source, or the bundle that this variable names. */
const MAIN = process.env.REINDEER_TEST_ENTRY ?? join(import.meta.dirname, '../../packages/gateway/src/main.ts');
const START_WITHIN_MS = 30_000;
const KEPT_OUTPUT = 64 * 1024;

export interface Finished {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A `reindeer` process. Its output is kept (bounded) for messages of failed tests. */
export class ReindeerProcess {
  readonly child: ChildProcess;
  /** Resolves when the process is gone. */
  readonly finished: Promise<Finished>;
  stdout = '';
  stderr = '';

  constructor(
    words: readonly string[],
    options: { readonly folder: string; readonly environment?: Readonly<Record<string, string>> },
  ) {
    const inherited = Object.fromEntries(
      Object.entries(process.env).filter(
        ([name]) => !/^(?:OPENAI|ANTHROPIC|REINDEER|DEER_FLOW|GATEWAY|LANG|PORT$|NODE_OPTIONS$|VITEST)/.test(name),
      ),
    );
    this.child = spawn(process.execPath, [MAIN, ...words], {
      cwd: options.folder,
      env: { ...inherited, ...options.environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout = (this.stdout + text).slice(-KEPT_OUTPUT);
    });
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr = (this.stderr + text).slice(-KEPT_OUTPUT);
    });
    this.finished = new Promise((resolve) => {
      this.child.once('close', (code, signal) => resolve({ code, signal }));
    });
  }

  /** Resolves when standard output matches; rejects with the output when the process ends first. */
  async output(pattern: RegExp): Promise<RegExpExecArray> {
    const patience = AbortSignal.timeout(START_WITHIN_MS);
    for (;;) {
      const match = pattern.exec(this.stdout);
      if (match !== null) return match;
      const more = new Promise<'more'>((resolve) => this.child.stdout?.once('data', () => resolve('more')));
      const late = new Promise<'late'>((resolve) =>
        patience.addEventListener('abort', () => resolve('late'), { once: true }),
      );
      const what = await Promise.race([more, late, this.finished.then(() => 'over' as const)]);
      if (what !== 'more' && pattern.exec(this.stdout) === null)
        throw new Error(`The process (${what}) never said ${pattern}.\n${this.stdout}\n${this.stderr}`);
    }
  }

  /** Ends the process as asked and waits until it is gone. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<Finished> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
    return await this.finished;
  }
}

export interface RunningServer {
  readonly process: ReindeerProcess;
  readonly url: string;
  readonly port: number;
  readonly token: string | null;
  readonly client: Client;
}

/** Starts `reindeer serve` on a free port and waits until it says that it is ready. */
export async function startServer(
  folder: string,
  options: {
    readonly environment?: Readonly<Record<string, string>>;
    readonly words?: readonly string[];
    /** Default: a free one. */
    readonly port?: number;
  } = {},
): Promise<RunningServer> {
  const child = new ReindeerProcess(['serve', '--port', String(options.port ?? 0), ...(options.words ?? [])], {
    folder,
    ...(options.environment === undefined ? {} : { environment: options.environment }),
  });
  const ready = await child.output(/ready: (http:\/\/[^/\s]+)\/(?:#token=(\S+))?/).catch(async (error: unknown) => {
    await child.end('SIGKILL');
    throw error;
  });
  const [, url = '', fragment = ''] = ready;
  const token = fragment === '' ? null : decodeURIComponent(fragment);
  return {
    process: child,
    url,
    port: Number(new URL(url).port),
    token,
    client: new Client({
      apiUrl: `${url}/api`,
      apiKey: null,
      callerOptions: { maxRetries: 0 },
      ...(token === null ? {} : { defaultHeaders: { authorization: `Bearer ${token}` } }),
    }),
  };
}

/** A fresh project folder with this configuration; `remove` deletes it with the data folder inside. */
export async function projectFolder(config = ''): Promise<{ readonly folder: string; remove(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-e2e-'));
  if (config !== '') await writeFile(join(folder, 'config.yaml'), config);
  return { folder, remove: () => rm(folder, { recursive: true, force: true, maxRetries: 5 }) };
}

/**
 * A configuration with one model: the scripted provider at this address, through the real OpenAI client. Its script need not know
 * about the memory, nor present the traces that it leaves in outputs; what a run must present has tests of its own.
 */
export const scriptedConfig = (openAiUrl: string, more = ''): string =>
  `${/^memory:/m.test(more) ? '' : 'memory: {enabled: false}\n'}workspace_changes: {require_presented: false}\nmodels:\n  - name: scripted\n    use: openai\n    model: scripted\n    api_key: not-a-real-key\n    base_url: ${openAiUrl}\n${more}`;

export const say = (content: string) => ({ messages: [{ role: 'user', content }] });
