import {
  type ExecRequest,
  type ExecResult,
  ReindeerError,
  type Sandbox,
  type SandboxFiles,
  VIRTUAL_ROOT,
} from '@reindeer/protocol';
import type { CheckedRequest } from './executor.ts';
import { type Mapping, parseVirtualPath } from './files/virtual-path.ts';
import { checkCommand } from './process/command.ts';
import { checkEnvironment } from './process/environment.ts';

export interface ThreadSandboxOptions {
  readonly id: string;
  readonly pathStyle: 'virtual' | 'relative';
  readonly files: SandboxFiles;
  readonly mappings: readonly Mapping[];
  readonly maxTimeoutMs: number;
  readonly run: ((request: CheckedRequest) => Promise<ExecResult>) | null;
  /** Why no command can run; shown to the model. */
  readonly unavailable: string;
}

/** One thread's sandbox: checks requests and hands them on. Holds no process and no open file while idle. */
export class ThreadSandbox implements Sandbox {
  readonly id: string;
  readonly pathStyle: 'virtual' | 'relative';
  readonly files: SandboxFiles;
  readonly #options: ThreadSandboxOptions;

  constructor(options: ThreadSandboxOptions) {
    this.id = options.id;
    this.pathStyle = options.pathStyle;
    this.files = options.files;
    this.#options = options;
  }

  get canExecute(): boolean {
    return this.#options.run !== null;
  }

  async exec(request: ExecRequest): Promise<ExecResult> {
    const { run, maxTimeoutMs } = this.#options;
    if (run === null) throw new ReindeerError('sandbox_unavailable', this.#options.unavailable);
    checkCommand(request.command);
    checkEnvironment(request.env ?? {});
    if (!(request.timeoutMs > 0)) {
      throw new ReindeerError('bad_request', 'The timeout must be more than 0 milliseconds.', {
        detail: { field: 'timeoutMs' },
      });
    }
    if (request.signal?.aborted)
      return { output: '', exitCode: null, ended: 'aborted', truncatedBytes: 0, durationMs: 0 };
    return run({
      command: request.command,
      cwd: await this.#folder(request.cwd ?? `${VIRTUAL_ROOT}/workspace`),
      env: request.env ?? {},
      timeoutMs: Math.min(request.timeoutMs, maxTimeoutMs),
      signal: request.signal ?? new AbortController().signal,
      ...(request.onOutput === undefined ? {} : { onOutput: request.onOutput }),
    });
  }

  async #folder(cwd: string): Promise<CheckedRequest['cwd']> {
    const parsed = parseVirtualPath(cwd, this.#options.mappings);
    if (parsed.mapping === null) throw new ReindeerError('path_refused', `${parsed.path}: commands cannot start here`);
    const info = await this.files.stat(parsed.path);
    if (info?.kind !== 'directory') throw new ReindeerError('not_found', `${parsed.path}: no such folder to start in`);
    return { virtual: parsed.path, real: [parsed.mapping.real, ...parsed.parts].join('/') };
  }
}
