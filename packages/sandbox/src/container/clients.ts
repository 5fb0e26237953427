import {
  type Clock,
  type ExecResult,
  ReindeerError,
  type SandboxClient,
  type SandboxFiles,
  type SandboxIdentity,
  type Surroundings,
} from '@reindeer/protocol';
import { baseEnvironment } from '../bubblewrap/arguments.ts';
import { DiskLedger } from '../bubblewrap/disk.ts';
import type { CheckedRequest } from '../executor.ts';
import { systemCode } from '../files/file-errors.ts';
import { toolMappings } from '../files/virtual-path.ts';
import { type ThreadPaths, threadPaths } from '../folders.ts';
import type { ProxyEnvironment } from '../http/proxy.ts';
import { FolderMirror } from '../mirror/mirror.ts';
import { threadTree } from '../mirror/thread-tree.ts';
import { ThreadSandbox } from '../thread-sandbox.ts';
import type { ContainerInfo } from './description.ts';
import type { RunFolders } from './run-folders.ts';
import type { ContainerSecrets } from './secrets.ts';
import { ServerClient } from './server-client.ts';
import type { ContainerSettings } from './settings.ts';
import { SOCKET_NAME } from './spec.ts';
import { ServerTransport } from './transport.ts';

export interface ContainerClientsParts {
  readonly settings: ContainerSettings;
  readonly surroundings: Surroundings;
  readonly home: string;
  readonly secrets: ContainerSecrets;
  readonly folders: RunFolders;
  /** The files of a thread as its tools see them. */
  readonly files: (identity: SandboxIdentity) => SandboxFiles;
  /** Proxies of the environment, for sandboxes that are neither here nor in a private network. */
  readonly environment?: ProxyEnvironment;
}

/** Over its quota a thread can clean up and write small files, no more. */
const OVER_QUOTA_FILE_BYTES = 1024 * 1024;
const DISK_LOOK_MS = 250;
/** What one try of `ready` may take. */
const PROBE_MS = 5_000;
/** Copies that are remembered; one that is forgotten is compared anew. */
const MAX_MIRRORS = 256;
/** What a connection meets where nobody listens, or whoever did is gone. */
const NOBODY = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ENOENT', 'ENOTDIR', 'ELOOP'];
/** No process of the host is named: what a container holds open but deleted is not looked for. */
const NO_PROCESS = 0;

/** Everything that speaks to the servers in containers: probes, and the sandboxes that are handed out. */
export class ContainerClients {
  readonly #parts: ContainerClientsParts;
  readonly #ledger: DiskLedger;
  readonly #running = new Map<string, number>();
  readonly #open = new Set<ServerClient>();
  /** Of sandboxes that do not share the thread's folders: which copy each has. */
  readonly #mirrors = new Map<string, FolderMirror>();

  constructor(parts: ContainerClientsParts) {
    this.#parts = parts;
    this.#ledger = new DiskLedger(parts.surroundings.clock);
  }

  /** Does a real command run in it? Never rejects. */
  async works(info: ContainerInfo, withinMs: number, signal?: AbortSignal): Promise<boolean> {
    const client = this.#client(info);
    const token = this.#parts.surroundings.random.uuid();
    const over = new AbortController();
    const late = new AbortController();
    this.#clock.sleep(withinMs, over.signal).then(
      () => late.abort(),
      () => {},
    );
    const ended = signal === undefined ? late.signal : AbortSignal.any([late.signal, signal]);
    // A server that hangs is not asked to end its command: the time of a probe is all that it gets (SX-11).
    const hangUp = () => {
      client.close().catch(() => {});
    };
    ended.addEventListener('abort', hangUp, { once: true });
    try {
      await client.hello(withinMs, ended);
      const probe = { command: `echo ${token}`, cwd: '/', env: {}, timeoutMs: withinMs, signal: ended };
      const sizes = { outputBytes: 4_096, outputEndBytes: 4_096, fileBytes: OVER_QUOTA_FILE_BYTES };
      const { output } = await client.run({ ...probe, ...sizes });
      return output.includes(token);
    } catch {
      return false;
    } finally {
      over.abort();
      ended.removeEventListener('abort', hangUp);
      await client.close();
    }
  }

  /**
   * Waits until a command runs in it. What has ended will not become ready; that is asked only after a failure, and not knowing is no answer.
   * Never rejects.
   *
   * @param pauses milliseconds between two tries: of the first, and at most
   */
  async ready(
    info: ContainerInfo,
    options: { readonly withinMs: number; readonly signal?: AbortSignal },
    pauses: readonly [number, number],
    hasEnded: () => Promise<boolean>,
  ): Promise<boolean> {
    const [first, longest] = pauses;
    const deadline = this.#clock.monotonic() + options.withinMs;
    for (let pause = first; options.signal?.aborted !== true; pause = Math.min(pause * 2, longest)) {
      const left = deadline - this.#clock.monotonic();
      if (left <= 0) return false;
      if (await this.works(info, Math.min(left, PROBE_MS), options.signal)) return true;
      if (await hasEnded().catch(() => false)) return false;
      const rest = deadline - this.#clock.monotonic();
      await this.#clock.sleep(Math.max(0, Math.min(pause, rest)), options.signal).catch(() => {});
    }
    return false;
  }

  /**
   * Does its server answer? `no`: nobody listens any more, or somebody else; `late`: not within the time; `unknown`: this process could not
   * ask, for want of a descriptor, a route or a name, which says nothing about the sandbox.
   */
  async answers(info: ContainerInfo, withinMs: number): Promise<'yes' | 'no' | 'late' | 'unknown'> {
    const client = this.#client(info);
    const began = this.#clock.monotonic();
    try {
      await client.hello(withinMs);
      return 'yes';
    } catch (error) {
      if (this.#clock.monotonic() - began >= withinMs * 0.9) return 'late';
      const code = systemCode(error);
      return code === undefined || NOBODY.includes(code) ? 'no' : 'unknown';
    } finally {
      await client.close();
    }
  }

  connect(info: ContainerInfo, identity: SandboxIdentity): SandboxClient {
    const { home, settings, files } = this.#parts;
    const paths = threadPaths(home, identity.userId, identity.threadId);
    const client = this.#client(info);
    this.#open.add(client);
    const sandbox = new ThreadSandbox({
      id: info.id,
      pathStyle: 'virtual',
      files: files(identity),
      mappings: toolMappings(paths),
      maxTimeoutMs: settings.bashCommandTimeoutMs,
      unavailable: '',
      run: (request) => this.#run(info, client, paths, request),
    });
    return Object.assign(sandbox, {
      close: async () => {
        this.#open.delete(client);
        await client.close();
      },
    });
  }

  /** Idempotent. */
  async close(): Promise<void> {
    await Promise.all([...this.#open].map((client) => client.close()));
    this.#open.clear();
  }

  get #clock(): Clock {
    return this.#parts.surroundings.clock;
  }

  #client(info: ContainerInfo): ServerClient {
    const { secrets, folders, surroundings } = this.#parts;
    const transport = new ServerTransport(
      info.transport === 'socket'
        ? { kind: 'socket', folder: folders.of(info), name: SOCKET_NAME }
        : { kind: 'url', url: urlOf(info.url) },
      info.ownServer ? secrets.of(info.nonce) : null,
      this.#parts.environment,
    );
    return new ServerClient(transport, surroundings.clock, () => surroundings.random.uuid());
  }

  async #run(
    info: ContainerInfo,
    client: ServerClient,
    paths: ThreadPaths,
    request: CheckedRequest,
  ): Promise<ExecResult> {
    const { settings } = this.#parts;
    const running = this.#running.get(info.id) ?? 0;
    if (running >= settings.maxCommands)
      throw new ReindeerError(
        'over_capacity',
        `${settings.maxCommands} commands run already in this sandbox; try again when one has ended.`,
        { retryable: true },
      );
    this.#running.set(info.id, running + 1);
    try {
      return settings.threadDataMounts
        ? await this.#watched(client, paths, request)
        : await this.#mirrored(info, client, paths, request);
    } catch (error) {
      if (ReindeerError.is(error)) throw error;
      throw new ReindeerError(
        'sandbox_unavailable',
        'The sandbox was lost while the command ran, and its outcome is unknown. The next command gets a new sandbox with the same files.',
        { cause: error, retryable: true },
      );
    } finally {
      const left = (this.#running.get(info.id) ?? 1) - 1;
      if (left > 0) this.#running.set(info.id, left);
      else this.#running.delete(info.id);
    }
  }

  /** Runs a command on a copy of the thread's folders: brought up to date before, read back after. */
  async #mirrored(
    info: ContainerInfo,
    client: ServerClient,
    paths: ThreadPaths,
    request: CheckedRequest,
  ): Promise<ExecResult> {
    const mirror = this.#mirrorOf(info, paths);
    let brought: readonly string[];
    try {
      brought = (await mirror.bring(client.files, request.signal)).notices;
    } catch (cause) {
      if (request.signal.aborted)
        return { output: '', exitCode: null, ended: 'aborted', truncatedBytes: 0, durationMs: 0 };
      const why = ReindeerError.is(cause) ? cause.message : 'the connection failed';
      throw new ReindeerError(
        'sandbox_unavailable',
        `The thread’s files could not be brought to the sandbox, and the command was not run: ${why}`,
        { cause, retryable: true },
      );
    }
    const result = await this.#command(client, paths, request, request.signal);
    try {
      return withNotices(result, [...brought, ...(await mirror.fetch(client.files)).notices]);
    } catch (error) {
      const why = ReindeerError.is(error) ? error.message : 'the connection failed';
      this.#parts.surroundings.logger.warn('The files of a sandbox could not be read back', {
        sandboxId: info.id,
        cause: String(error),
      });
      return withNotices(result, [
        ...brought,
        `what this command wrote could not be read back (${why}) and is only in the sandbox; it is tried again after the next command`,
      ]);
    }
  }

  #mirrorOf({ nonce }: ContainerInfo, paths: ThreadPaths): FolderMirror {
    const known = this.#mirrors.get(nonce);
    const { surroundings, settings } = this.#parts;
    const mirror = known ?? new FolderMirror(threadTree(paths, surroundings.random), settings.diskBytes);
    this.#mirrors.delete(nonce);
    this.#mirrors.set(nonce, mirror);
    for (const oldest of this.#mirrors.keys()) {
      if (this.#mirrors.size <= MAX_MIRRORS) break;
      this.#mirrors.delete(oldest);
    }
    return mirror;
  }

  /** The sandbox is gone, and its copy with it. */
  forget({ nonce }: ContainerInfo): void {
    this.#mirrors.delete(nonce);
  }

  async #command(
    client: ServerClient,
    paths: ThreadPaths,
    request: CheckedRequest,
    signal: AbortSignal,
  ): Promise<ExecResult> {
    const { settings } = this.#parts;
    const over = await this.#ledger.isOver(paths.thread, settings.diskBytes);
    return client.run({
      command: request.command,
      cwd: request.cwd.virtual,
      env: { ...variables(), ...settings.environment, ...request.env },
      timeoutMs: request.timeoutMs,
      outputBytes: settings.outputBytes,
      outputEndBytes: settings.outputEndBytes,
      fileBytes: over ? Math.min(settings.diskBytes, OVER_QUOTA_FILE_BYTES) : settings.diskBytes,
      signal,
      ...(request.onOutput === undefined ? {} : { onOutput: request.onOutput }),
    });
  }

  /** Runs a command while the thread's disk space is watched. */
  async #watched(client: ServerClient, paths: ThreadPaths, request: CheckedRequest): Promise<ExecResult> {
    const full = new AbortController();
    const ended = new AbortController();
    const watch = this.#watchDisk(paths, full, ended.signal);
    try {
      const signal = AbortSignal.any([request.signal, full.signal]);
      const result = await this.#command(client, paths, request, signal);
      if (full.signal.aborted && result.ended === 'aborted') return { ...result, ended: 'limit', limit: 'disk' };
      return result;
    } finally {
      ended.abort();
      await watch;
    }
  }

  async #watchDisk(paths: ThreadPaths, full: AbortController, ended: AbortSignal): Promise<void> {
    const watch = this.#ledger.watch(paths.thread, this.#parts.settings.diskBytes);
    for (;;) {
      await this.#clock.sleep(DISK_LOOK_MS, ended).catch(() => {});
      if (ended.aborted) return;
      if (!(await watch.exceeded(NO_PROCESS).catch(() => false))) continue;
      full.abort();
      return;
    }
  }
}

/** What every command finds; the search path is the image's own. */
function variables(): Record<string, string> {
  const { PATH: _path, ...rest } = baseEnvironment();
  return rest;
}

function urlOf(url: string): URL {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed !== null && /^https?:$/.test(parsed.protocol)) return parsed;
  throw new ReindeerError('sandbox_unavailable', 'This sandbox has no address.');
}

function withNotices(result: ExecResult, notices: readonly string[]): ExecResult {
  if (notices.length === 0) return result;
  return { ...result, output: `${result.output}\n[Files: ${notices.join('; ')}]\n` };
}
