import {
  type ExecRequest,
  type ExecResult,
  type FileInfo,
  type IsolationReport,
  ReindeerError,
  type Sandbox,
  type SandboxFiles,
  type SandboxProvider,
} from '@reindeer/protocol';

export interface MemorySandboxOptions {
  readonly canExecute?: boolean;
  readonly provider?: string;
  readonly exec?: (request: ExecRequest) => Promise<ExecResult> | ExecResult;
}

export const exited = (output: string, exitCode = 0): ExecResult => ({
  output,
  exitCode,
  ended: 'exit',
  truncatedBytes: 0,
  durationMs: 1,
});

/** A sandbox whose files are a map and whose commands are a function. Records acquisitions, releases and commands. */
export class MemorySandboxes implements SandboxProvider {
  readonly contents = new Map<string, Uint8Array>();
  readonly acquired: string[] = [];
  readonly released: string[] = [];
  readonly commands: ExecRequest[] = [];
  readonly listings: { readonly depth: number; readonly ignore?: readonly string[] }[] = [];
  /** When a file was changed last; 0 where nothing is said. */
  readonly times = new Map<string, number>();
  readonly #kinds = new Map<string, FileInfo['kind']>();
  readonly #options: MemorySandboxOptions;
  readonly #held = new Map<string, Sandbox>();

  constructor(options: MemorySandboxOptions = {}) {
    this.#options = options;
  }

  put(path: string, text: string | Uint8Array, kind: FileInfo['kind'] = 'file'): this {
    this.#kinds.set(path, kind);
    this.contents.set(path, typeof text === 'string' ? Buffer.from(text) : text);
    return this;
  }

  text(path: string): string | undefined {
    const bytes = this.contents.get(path);
    return bytes === undefined ? undefined : Buffer.from(bytes).toString();
  }

  report(): IsolationReport {
    return {
      provider: this.#options.provider ?? 'bubblewrap',
      canExecute: this.#options.canExecute ?? true,
      network: 'none',
      limits: [],
    };
  }

  async acquire(input: { userId: string; threadId: string }): Promise<Sandbox> {
    const id = `box-${input.threadId}`;
    this.acquired.push(id);
    const sandbox: Sandbox = {
      id,
      canExecute: this.report().canExecute,
      pathStyle: this.report().provider === 'local' ? 'relative' : 'virtual',
      files: this.files(),
      exec: async (request) => {
        this.commands.push(request);
        return (await this.#options.exec?.(request)) ?? exited('');
      },
    };
    this.#held.set(id, sandbox);
    return sandbox;
  }

  get(id: string): Sandbox | undefined {
    return this.#held.get(id);
  }

  async release(id: string): Promise<void> {
    this.released.push(id);
    this.#held.delete(id);
  }

  async removeThread(): Promise<void> {
    this.contents.clear();
  }

  async shutdown(): Promise<void> {}

  files(): SandboxFiles {
    const { contents, listings, times } = this;
    const kinds = this.#kinds;
    const info = (path: string): FileInfo => ({
      path,
      kind: kinds.get(path) ?? 'file',
      size: contents.get(path)?.length ?? 0,
      modifiedAt: times.get(path) ?? 0,
    });
    const below = (path: string): string[] => [...contents.keys()].filter((key) => key.startsWith(`${path}/`)).sort();
    const unused = (): never => {
      throw new ReindeerError('not_implemented', 'Not part of this double.');
    };
    return {
      stat: async (path) => (contents.has(path) ? info(path) : null),
      async read(path, { maxBytes }) {
        const bytes = contents.get(path);
        if (bytes === undefined) throw new ReindeerError('not_found', `${path} does not exist.`);
        if (bytes.length > maxBytes) throw new ReindeerError('too_large', `${path} is larger than ${maxBytes} bytes.`);
        return bytes;
      },
      async write(path, data, options) {
        const before = options?.append === true ? (contents.get(path) ?? new Uint8Array()) : new Uint8Array();
        contents.set(path, Buffer.concat([before, Buffer.from(data as Uint8Array)]));
        return info(path);
      },
      remove: async (path) => contents.delete(path),
      async list(path, options) {
        const { limit } = options;
        listings.push(options);
        const found = below(path);
        return { entries: found.slice(0, limit).map(info), truncated: found.length > limit };
      },
      async glob(pattern, path, { limit }) {
        const end = pattern.replace(/^\**\/?\**/, '');
        const found = below(path).filter((key) => key.endsWith(end));
        return { paths: found.slice(0, limit), truncated: found.length > limit };
      },
      async grep(pattern, path, { literal, caseSensitive, limit, glob = '*' }) {
        const source = literal ? pattern.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') : pattern;
        const expression = new RegExp(source, caseSensitive ? '' : 'i');
        const named = below(path).filter((key) => key.endsWith(glob.replace(/^\*+/, '')));
        const matches = named.flatMap((key) =>
          Buffer.from(contents.get(key) ?? [])
            .toString()
            .split('\n')
            .map((text, index) => ({ path: key, line: index + 1, text }))
            .filter((match) => expression.test(match.text)),
        );
        return { matches: matches.slice(0, limit), truncated: matches.length > limit, filesSkipped: 0 };
      },
      openRead: unused,
      writeStream: unused,
    } as SandboxFiles;
  }
}
