import { stat } from 'node:fs/promises';
import {
  type ExecResult,
  type IsolationReport,
  ReindeerError,
  type Sandbox,
  type SandboxFiles,
  type SandboxProvider,
  type Surroundings,
} from '@reindeer/protocol';
import type { CheckedRequest, Executor, ThreadKey } from './executor.ts';
import { openRoot } from './files/directory.ts';
import { systemCode } from './files/file-errors.ts';
import type { Matcher } from './files/matcher.ts';
import { Staging } from './files/staging.ts';
import { ThreadFiles } from './files/thread-files.ts';
import { type Mapping, threadMappings, toolMappings } from './files/virtual-path.ts';
import { type ThreadPaths, threadPaths } from './folders.ts';
import { safeUserId } from './identity.ts';
import { KeyedLock } from './keyed-lock.ts';
import { Background } from './process/background.ts';
import type { PipePool } from './process/pipes.ts';
import { within } from './process/supervise.ts';
import type { SandboxSettings } from './settings.ts';
import { ThreadSandbox } from './thread-sandbox.ts';

export interface ProviderParts {
  readonly executor: Executor;
  readonly settings: SandboxSettings;
  /** Real path of the data folder. */
  readonly home: string;
  readonly surroundings: Surroundings;
  readonly matcher: Matcher;
  readonly pipes: PipePool;
}

/** Sandboxes kept by id; beyond that the least recently used is forgotten, which costs nothing but its next `acquire` (SL-08). */
export const MAX_SANDBOXES = 256;
/** Threads of which we remember that their folders exist. */
const MAX_PREPARED = 10_000;
const STALE_STAGING_MS = 24 * 60 * 60 * 1000;
/** Milliseconds that `shutdown` and `removeThread` wait for killed commands. */
const END_MS = 15_000;

interface Life {
  over: boolean;
}

interface LiveCommand {
  readonly key: string;
  readonly controller: AbortController;
  readonly over: Promise<unknown>;
}

/**
 * One provider for every way to run commands; the executor makes the difference.
 *
 * A sandbox is a name for a thread's folders: *unknown* → `acquire` (folders made, entry in the map) → *known* → forgotten by age or
 * `removeThread`. Commands are *live* from the check to the death of their last process. The provider itself is *open* → *closing*
 * (`shutdown`: nothing new, all live commands killed and awaited) → *closed*.
 */
export class ThreadSandboxProvider implements SandboxProvider {
  readonly #parts: ProviderParts;
  readonly #lock = new KeyedLock();
  readonly #sandboxes = new Map<string, Sandbox>();
  /** Thread folder → its preparation, once begun. */
  readonly #prepared = new Map<string, Promise<void>>();
  /** By thread: whether it is still the one that sandboxes in somebody's hand were made for. */
  readonly #lives = new Map<string, Life>();
  readonly #live = new Set<LiveCommand>();
  readonly #background: Background;
  #closing: Promise<void> | null = null;

  constructor(parts: ProviderParts) {
    this.#parts = parts;
    this.#background = new Background(parts.surroundings.logger);
  }

  report(): IsolationReport {
    return this.#parts.executor.report;
  }

  async acquire(input: {
    readonly userId: string;
    readonly threadId: string;
    readonly signal?: AbortSignal;
  }): Promise<Sandbox> {
    const key = { userId: input.userId, threadId: input.threadId };
    const paths = threadPaths(this.#parts.home, key.userId, key.threadId);
    const id = sandboxId(key);
    return this.#lock.run(
      id,
      async () => {
        // Somebody else, another process too, may have removed the folders since.
        if ((await stat(paths.folders.workspace).catch(() => null)) === null) this.#prepared.delete(paths.thread);
        await this.#prepare(paths, key);
        // Asked again after the file work (SL-07): the world may have moved on meanwhile.
        if (input.signal?.aborted) throw new ReindeerError('aborted', 'The wait for the sandbox was cancelled.');
        this.#refuseWhenClosing();
        const sandbox = this.get(id) ?? this.#make(id, paths, key);
        this.#remember(id, sandbox);
        return sandbox;
      },
      input.signal,
    );
  }

  get(id: string): Sandbox | undefined {
    const sandbox = this.#sandboxes.get(id);
    if (sandbox !== undefined) this.#remember(id, sandbox);
    return sandbox;
  }

  /** Nothing to do: an idle sandbox holds nothing. Live commands belong to their callers. */
  async release(_sandboxId: string): Promise<void> {}

  files(input: { readonly userId: string; readonly threadId: string }): SandboxFiles {
    const paths = threadPaths(this.#parts.home, input.userId, input.threadId);
    const key = { userId: input.userId, threadId: input.threadId };
    return this.#files(paths, threadMappings(paths.userData, []), () => this.#prepare(paths, key));
  }

  async removeThread(input: { readonly userId: string; readonly threadId: string }): Promise<void> {
    const paths = threadPaths(this.#parts.home, input.userId, input.threadId);
    const id = sandboxId(input);
    await this.#lock.run(id, async () => {
      this.#sandboxes.delete(id);
      // A call that nobody could end would make the folders of the thread again, or write into those of the next one with its id.
      const life = this.#lives.get(id);
      if (life !== undefined) life.over = true;
      this.#lives.delete(id);
      await this.#endCommands((command) => command.key === id);
      this.#prepared.delete(paths.thread);
      await this.#removeFolder(paths);
    });
  }

  shutdown(): Promise<void> {
    this.#closing ??= this.#shutdown();
    return this.#closing;
  }

  async #shutdown(): Promise<void> {
    this.#lock.close();
    this.#sandboxes.clear();
    await this.#endCommands(() => true);
    await this.#background.settled();
    await this.#parts.matcher.close();
    await this.#parts.executor.close();
    await this.#parts.pipes.close();
  }

  #refuseWhenClosing(): void {
    if (this.#closing !== null) throw new ReindeerError('shutting_down', 'The sandbox provider is closed.');
  }

  #remember(id: string, sandbox: Sandbox): void {
    this.#sandboxes.delete(id);
    this.#sandboxes.set(id, sandbox);
    for (const oldest of this.#sandboxes.keys()) {
      if (this.#sandboxes.size <= MAX_SANDBOXES) break;
      this.#sandboxes.delete(oldest);
    }
  }

  /** The next acquire of each sandbox is under the settings of then. Those that somebody holds go on as they are. */
  forgetIdle(): void {
    this.#sandboxes.clear();
  }

  #make(id: string, paths: ThreadPaths, key: ThreadKey): Sandbox {
    const { executor } = this.#parts;
    // Settings may change while somebody holds it.
    const settings = { ...this.#parts.settings };
    const { execute } = executor;
    const { reason, remedy } = executor.report;
    const life = this.#lifeOf(id);
    const prepare = async (): Promise<void> => {
      if (life.over) throw new ReindeerError('sandbox_unavailable', 'The conversation was deleted.');
      await this.#prepare(paths, key);
    };
    return new ThreadSandbox({
      id,
      pathStyle: executor.pathStyle,
      files: this.#files(paths, toolMappings(paths), prepare),
      mappings: toolMappings(paths),
      maxTimeoutMs: settings.bashCommandTimeoutMs,
      unavailable: `Commands cannot run here: ${reason ?? 'no way to run them was found.'} To change that: ${remedy ?? 'see `reindeer doctor`.'}`,
      run:
        execute === null
          ? null
          : (request) =>
              this.#run(id, prepare, request, (one) => execute(paths, key, one, settings), settings.maxCommands),
    });
  }

  /** Runs one command as live: counted, bounded, and ended by `shutdown` and `removeThread`. */
  async #run(
    id: string,
    prepare: () => Promise<void>,
    request: CheckedRequest,
    execute: (request: CheckedRequest) => Promise<ExecResult>,
    most: number,
  ): Promise<ExecResult> {
    this.#refuseWhenClosing();
    if (this.#live.size >= most) {
      throw new ReindeerError('over_capacity', `${most} commands run already; try again when one has ended.`, {
        retryable: true,
      });
    }
    const controller = new AbortController();
    const signal = AbortSignal.any([request.signal, controller.signal]);
    const over = prepare().then(() => execute({ ...request, signal }));
    const command: LiveCommand = { key: id, controller, over };
    this.#live.add(command);
    try {
      return await over;
    } finally {
      this.#live.delete(command);
    }
  }

  async #endCommands(which: (command: LiveCommand) => boolean): Promise<void> {
    const commands = [...this.#live].filter(which);
    for (const command of commands) command.controller.abort();
    const all = Promise.allSettled(commands.map((command) => command.over));
    if (await within(this.#parts.surroundings.clock, END_MS, all)) return;
    this.#parts.surroundings.logger.error('Some commands did not end in time.', { live: this.#live.size });
  }

  #lifeOf(id: string): Life {
    const life = this.#lives.get(id) ?? { over: false };
    this.#lives.delete(id);
    this.#lives.set(id, life);
    for (const oldest of this.#lives.keys()) {
      if (this.#lives.size <= MAX_PREPARED) break;
      this.#lives.delete(oldest);
    }
    return life;
  }

  #files(paths: ThreadPaths, mappings: readonly Mapping[], prepare: () => Promise<void>): SandboxFiles {
    return new ThreadFiles({
      mappings,
      staging: new Staging(paths.staging, this.#parts.surroundings.random),
      matcher: this.#parts.matcher,
      clock: this.#parts.surroundings.clock,
      prepare,
    });
  }

  /** Makes a thread's folders once per process and clears what a crash left in its staging folder. */
  #prepare(paths: ThreadPaths, key: ThreadKey): Promise<void> {
    const known = this.#prepared.get(paths.thread);
    if (known !== undefined) return known;
    const { executor, surroundings } = this.#parts;
    const preparing = (async () => {
      await executor.prepare(paths, key);
      const staging = new Staging(paths.staging, surroundings.random);
      this.#background.add(staging.sweep(surroundings.clock.now(), STALE_STAGING_MS));
    })();
    this.#prepared.set(paths.thread, preparing);
    for (const oldest of this.#prepared.keys()) {
      if (this.#prepared.size <= MAX_PREPARED) break;
      this.#prepared.delete(oldest);
    }
    preparing.catch(() => {
      if (this.#prepared.get(paths.thread) === preparing) this.#prepared.delete(paths.thread);
    });
    return preparing.catch((cause: unknown) => {
      if (ReindeerError.is(cause)) throw cause;
      throw new ReindeerError('sandbox_unavailable', "The thread's folders cannot be made; check the data folder.", {
        cause,
        retryable: true,
      });
    });
  }

  async #removeFolder(paths: ThreadPaths): Promise<void> {
    const parent = await openRoot(paths.thread.slice(0, paths.thread.lastIndexOf('/'))).catch((error: unknown) => {
      if (systemCode(error) === 'ENOENT') return null;
      throw error;
    });
    if (parent === null) return;
    try {
      // Moved away in one step, so that a thread of the same id may be made again at once.
      const trash = new Staging(trashFolder(this.#parts.home), this.#parts.surroundings.random);
      await trash.discard(parent, paths.thread.slice(paths.thread.lastIndexOf('/') + 1));
    } finally {
      await parent.close();
    }
  }
}

/** Where removed threads are taken apart; made by `createSandboxProvider`. */
export function trashFolder(home: string): string {
  return `${home}/sandbox/trash`;
}

function sandboxId(key: ThreadKey): string {
  return `sandbox:${safeUserId(key.userId)}:${key.threadId}`;
}
