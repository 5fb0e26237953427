import { openMemory } from '@reindeer/database';
import {
  type AdmissionResult,
  type CancelResult,
  type CreateRun,
  type Fact,
  type FileInfo,
  ReindeerError,
  type Run,
  type RunService,
  type SandboxFiles,
  type SandboxProvider,
  type StateSnapshot,
  type StreamItem,
  type Thread,
  type ThreadService,
} from '@reindeer/protocol';
import { systemSurroundings } from '@reindeer/runtime';
import { makeRun } from '@reindeer/testkit';
import { NO_PAGE } from '../http/page.ts';
import type { HttpParts, Intake } from '../http/parts.ts';
import { type HttpServer, listen } from '../http/server.ts';

/** Stand-ins for the services behind the HTTP layer, so that its own behaviour can be tested alone. */

class FakeThreads implements ThreadService {
  readonly rows = new Map<string, Thread>();
  readonly facts_: Fact[] = [];
  readonly states = new Map<string, StateSnapshot[]>();
  readonly updates: unknown[] = [];
  updateOutcome: 'updated' | 'busy' | 'invalid' = 'updated';
  deleteOutcome: 'deleted' | 'busy' = 'deleted';

  add(threadId: string, userId = 'default'): Thread {
    const thread: Thread = {
      threadId,
      userId,
      metadata: {},
      title: null,
      status: 'idle',
      createdAt: 1000,
      updatedAt: 2000,
    };
    this.rows.set(threadId, thread);
    return thread;
  }
  async create(input: Parameters<ThreadService['create']>[0]): ReturnType<ThreadService['create']> {
    const found = input.threadId === null ? undefined : this.rows.get(input.threadId);
    if (found !== undefined) {
      if (found.userId !== input.userId) return { outcome: 'not_found' };
      return input.ifExists === 'raise' ? { outcome: 'conflict' } : { outcome: 'exists', thread: found };
    }
    const thread = { ...this.add(input.threadId ?? crypto.randomUUID(), input.userId), metadata: input.metadata };
    this.rows.set(thread.threadId, thread);
    return { outcome: 'created', thread };
  }
  async get(input: { threadId: string; userId: string }): Promise<Thread | null> {
    const found = this.rows.get(input.threadId);
    return found?.userId === input.userId ? found : null;
  }
  async search(input: Parameters<ThreadService['search']>[0]): Promise<readonly Thread[]> {
    return [...this.rows.values()]
      .filter((thread) => thread.userId === input.userId)
      .slice(input.offset, input.offset + input.limit);
  }
  readonly found = new Map<string, Awaited<ReturnType<ThreadService['find']>>>();
  /** What a search waits for. */
  finding: Promise<void> = Promise.resolve();
  async find(input: Parameters<ThreadService['find']>[0]): ReturnType<ThreadService['find']> {
    if ((await this.get(input)) === null) return null;
    await this.finding;
    return this.found.get(input.threadId) ?? { found: [], complete: true };
  }
  async update(input: Parameters<ThreadService['update']>[0]): Promise<Thread | null> {
    const found = await this.get(input);
    if (found === null) return null;
    const thread = {
      ...found,
      metadata: { ...found.metadata, ...input.metadata },
      ...(input.title === undefined ? {} : { title: input.title }),
    };
    this.rows.set(input.threadId, thread);
    return thread;
  }
  async delete(input: { threadId: string; userId: string }): Promise<'deleted' | 'busy' | 'not_found'> {
    if ((await this.get(input)) === null) return 'not_found';
    if (this.deleteOutcome === 'deleted') this.rows.delete(input.threadId);
    return this.deleteOutcome;
  }
  async branch(input: Parameters<ThreadService['branch']>[0]): ReturnType<ThreadService['branch']> {
    if ((await this.get(input)) === null) return { outcome: 'not_found' };
    if (this.updateOutcome === 'busy') return { outcome: 'busy' };
    const { threadId } = this.add(`${input.threadId}-branch`, input.userId);
    await input.copyFiles(threadId);
    return { outcome: 'branched', threadId, messages: 1 };
  }
  async copy(input: { threadId: string; userId: string }): Promise<Thread | null> {
    return (await this.get(input)) === null ? null : this.add(`${input.threadId}-copy`, input.userId);
  }
  async state(input: Parameters<ThreadService['state']>[0]): Promise<StateSnapshot | null> {
    if ((await this.get(input)) === null) return null;
    const states = this.states.get(input.threadId) ?? [];
    return (
      (input.checkpointId === null
        ? states[0]
        : states.find((state) => state.checkpoint.checkpoint_id === input.checkpointId)) ?? null
    );
  }
  async history(input: Parameters<ThreadService['history']>[0]): Promise<readonly StateSnapshot[] | null> {
    if ((await this.get(input)) === null) return null;
    return (this.states.get(input.threadId) ?? []).slice(0, input.limit);
  }
  async updateState(input: Parameters<ThreadService['updateState']>[0]): ReturnType<ThreadService['updateState']> {
    if ((await this.get(input)) === null) return { outcome: 'not_found' };
    this.updates.push(input);
    switch (this.updateOutcome) {
      case 'busy':
        return { outcome: 'busy' };
      case 'invalid':
        return { outcome: 'invalid', message: 'Unknown state field "colour".' };
      case 'updated':
        return { outcome: 'updated', checkpoint: makeState(input.threadId, 'c9').checkpoint };
    }
  }
  async changeState(input: Parameters<ThreadService['changeState']>[0]): ReturnType<ThreadService['changeState']> {
    if ((await this.get(input)) === null) return { outcome: 'not_found' };
    if (this.updateOutcome === 'busy') return { outcome: 'busy' };
    const [newest] = this.states.get(input.threadId) ?? [];
    const values = await input.change({ values: newest?.values ?? {}, signal: new AbortController().signal });
    if (values === null || values === undefined) return { outcome: 'unchanged' };
    this.updates.push(values);
    const checkpoint = { thread_id: input.threadId, checkpoint_ns: '', checkpoint_id: 'new', checkpoint_map: null };
    return { outcome: 'updated', checkpoint };
  }
  async messages(input: Parameters<ThreadService['messages']>[0]): ReturnType<ThreadService['messages']> {
    if ((await this.get(input)) === null) return null;
    return { facts: this.facts_.filter((fact) => fact.body.kind === 'message'), hasMore: input.before === null };
  }
  async facts(input: Parameters<ThreadService['facts']>[0]): ReturnType<ThreadService['facts']> {
    if ((await this.get(input)) === null) return null;
    const facts = this.facts_.filter((fact) => fact.seq > input.afterSeq).slice(0, input.limit);
    return { facts, head: this.facts_.at(-1)?.seq ?? 0 };
  }
}

export function makeState(threadId: string, checkpointId: string, values: StateSnapshot['values'] = {}): StateSnapshot {
  return {
    values,
    next: [],
    metadata: { step: 1 },
    checkpoint: { thread_id: threadId, checkpoint_ns: '', checkpoint_id: checkpointId, checkpoint_map: null },
    parentCheckpoint: null,
    createdAt: '2026-01-01T00:00:00.000Z',
    tasks: [],
    interrupts: [],
  };
}

class FakeRuns implements RunService {
  readonly created: CreateRun[] = [];
  readonly disconnections: string[] = [];
  readonly cancels: { runId: string; action: string; wait: boolean }[] = [];
  readonly streams: Parameters<RunService['stream']>[0][] = [];
  readonly rows = new Map<string, Run>();
  readonly #threads: FakeThreads;
  admission: ((input: CreateRun) => AdmissionResult) | null = null;
  cancelResult: ((run: Run) => CancelResult) | null = null;
  source: (input: Parameters<RunService['stream']>[0]) => AsyncIterable<StreamItem> = async function* (input) {
    yield { id: null, event: 'metadata', data: JSON.stringify({ run_id: input.runId, thread_id: input.threadId }) };
    yield { id: 'e-1', event: 'values', data: '{"messages":[]}' };
    yield { id: null, event: 'end', data: 'null' };
  };
  joined: (run: Run, signal: AbortSignal | undefined) => Promise<Run | null> = async (run) => ({
    ...run,
    status: 'success',
    acknowledged: true,
  });
  onDisconnected: () => void = () => {};

  constructor(threads: FakeThreads) {
    this.#threads = threads;
  }
  async create(input: CreateRun): Promise<AdmissionResult> {
    this.created.push(input);
    if (this.admission !== null) return this.admission(input);
    const threadId = input.threadId ?? crypto.randomUUID();
    if ((await this.#threads.get({ threadId, userId: input.userId })) === null) {
      if (!input.createThread) return { outcome: 'thread_not_found' };
      this.#threads.add(threadId, input.userId);
    }
    const run = makeRun({
      runId: crypto.randomUUID(),
      threadId,
      userId: input.userId,
      request: input.request,
      metadata: input.metadata,
      multitaskStrategy: input.multitaskStrategy,
      onDisconnect: input.onDisconnect,
    });
    this.rows.set(run.runId, run);
    return { outcome: 'admitted', run, superseded: [] };
  }
  async get(input: { runId: string; threadId: string; userId: string }): Promise<Run | null> {
    const run = this.rows.get(input.runId);
    return run?.threadId === input.threadId && run.userId === input.userId ? run : null;
  }
  async list(input: Parameters<RunService['list']>[0]): Promise<readonly Run[]> {
    return [...this.rows.values()].filter((run) => run.threadId === input.threadId).reverse();
  }
  async cancel(input: Parameters<RunService['cancel']>[0]): Promise<CancelResult> {
    const run = await this.get(input);
    if (run === null) return { outcome: 'not_found' };
    this.cancels.push({ runId: input.runId, action: input.action, wait: input.wait });
    return this.cancelResult?.(run) ?? { outcome: 'accepted', run, stopped: input.wait, stillRunning: [] };
  }
  stream(input: Parameters<RunService['stream']>[0]): AsyncIterable<StreamItem> {
    this.streams.push(input);
    return this.source(input);
  }
  async join(input: Parameters<RunService['join']>[0]): Promise<Run | null> {
    const run = await this.get(input);
    return run === null ? null : await this.joined(run, input.signal);
  }
  async disconnected(input: { runId: string }): Promise<void> {
    this.disconnections.push(input.runId);
    this.onDisconnected();
  }
  async remove(input: {
    runId: string;
    threadId: string;
    userId: string;
  }): Promise<'removed' | 'active' | 'not_found'> {
    const run = await this.get(input);
    if (run === null) return 'not_found';
    if (!run.acknowledged) return 'active';
    this.rows.delete(input.runId);
    return 'removed';
  }
}

/** Files in memory, one folder tree per thread. */
export class FakeFiles implements SandboxFiles {
  readonly tree = new Map<string, { bytes: Uint8Array; kind: FileInfo['kind'] }>();
  opened = 0;

  put(path: string, content: string | Uint8Array, kind: FileInfo['kind'] = 'file'): void {
    this.tree.set(path, { bytes: typeof content === 'string' ? new TextEncoder().encode(content) : content, kind });
  }
  #info(path: string): FileInfo | null {
    const found = this.tree.get(path);
    if (found !== undefined)
      return { path, kind: found.kind, size: found.bytes.byteLength, modifiedAt: 1_700_000_000_000 };
    return [...this.tree.keys()].some((key) => key.startsWith(`${path}/`))
      ? { path, kind: 'directory', size: 0, modifiedAt: 0 }
      : null;
  }
  async stat(path: string): Promise<FileInfo | null> {
    if (path.includes('..')) throw new ReindeerError('path_refused', 'Refused.');
    return this.#info(path);
  }
  async read(path: string): Promise<Uint8Array> {
    return this.tree.get(path)?.bytes ?? new Uint8Array();
  }
  async write(path: string, data: Uint8Array | string): Promise<FileInfo> {
    this.put(path, data);
    return this.#info(path) as FileInfo;
  }
  async remove(path: string): Promise<boolean> {
    return this.tree.delete(path);
  }
  async list(path: string): ReturnType<SandboxFiles['list']> {
    const entries = [...this.tree.keys()]
      .filter((key) => key.startsWith(`${path}/`))
      .map((key) => this.#info(key) as FileInfo);
    if (entries.length === 0) throw new ReindeerError('not_found', 'No such folder.');
    return { entries, truncated: false };
  }
  async glob(): ReturnType<SandboxFiles['glob']> {
    return { paths: [], truncated: false };
  }
  async grep(): ReturnType<SandboxFiles['grep']> {
    return { matches: [], truncated: false, filesSkipped: 0 };
  }
  async openRead(path: string, range?: { start: number; end: number }): ReturnType<SandboxFiles['openRead']> {
    this.opened += 1;
    const bytes = (this.tree.get(path)?.bytes ?? new Uint8Array()).slice(range?.start, range?.end);
    const stream = new ReadableStream<Uint8Array>({
      start: (controller) => {
        controller.enqueue(bytes);
        controller.close();
      },
    });
    return { info: this.#info(path) as FileInfo, stream };
  }
  async writeStream(path: string, source: AsyncIterable<Uint8Array>, options: { maxBytes: number }): Promise<FileInfo> {
    const chunks: Uint8Array[] = [];
    let size = 0;
    for await (const chunk of source) {
      size += chunk.byteLength;
      if (size > options.maxBytes) throw new ReindeerError('too_large', 'Too large.');
      chunks.push(chunk);
    }
    this.put(path, Buffer.concat(chunks));
    return this.#info(path) as FileInfo;
  }
}

class FakeSandboxes implements SandboxProvider {
  readonly folders = new Map<string, FakeFiles>();
  report(): ReturnType<SandboxProvider['report']> {
    return { provider: 'files-only', canExecute: false, network: 'none', limits: [] };
  }
  acquire(): Promise<never> {
    return Promise.reject(new ReindeerError('sandbox_unavailable', 'Not here.'));
  }
  get(): undefined {
    return undefined;
  }
  async release(): Promise<void> {}
  files(input: { userId: string; threadId: string }): FakeFiles {
    const key = `${input.userId}/${input.threadId}`;
    const found = this.folders.get(key) ?? new FakeFiles();
    this.folders.set(key, found);
    return found;
  }
  async removeThread(input: { userId: string; threadId: string }): Promise<void> {
    this.folders.delete(`${input.userId}/${input.threadId}`);
  }
  async shutdown(): Promise<void> {}
}

export interface Fixture {
  readonly url: string;
  readonly port: number;
  readonly threads: FakeThreads;
  readonly runs: FakeRuns;
  readonly sandboxes: FakeSandboxes;
  readonly server: HttpServer;
  intake: Intake;
  close(): Promise<void>;
}

/** A real server on a free loopback port over stand-in services. */
export async function startFixture(part: Partial<HttpParts> = {}): Promise<Fixture> {
  const threads = new FakeThreads();
  const runs = new FakeRuns(threads);
  const sandboxes = new FakeSandboxes();
  const fixture = { threads, runs, sandboxes, intake: { ready: true, stopping: false } as Intake };
  const server = await listen(
    {
      runs,
      threads,
      feedback: openMemory({ surroundings: systemSurroundings() }).feedback,
      sandboxes,
      sandboxPool: null,
      metrics: () => '',
      assistants: [{ assistantId: 'lead_agent', name: 'Lead agent', description: 'Plans and works.' }],
      models: [
        {
          name: 'demo',
          model: 'demo',
          display_name: 'Demo',
          description: '',
          supports_thinking: false,
          supports_reasoning_effort: false,
          supports_vision: false,
          demo: true,
        },
      ],
      tokenUsage: true,
      limits: { defaultRecursionLimit: 100, maxRecursionLimit: 1000, models: ['demo'] },
      uploads: { maxFiles: 3, maxFileSize: 1000, maxTotalSize: 2500 },
      guards: { allowedHosts: [], allowedOrigins: [], token: null },
      page: NO_PAGE,
      surroundings: systemSurroundings(),
      intake: () => fixture.intake,
      version: '0.0.0',
      heartbeatMs: 15_000,
      stalledMs: 60_000,
      userId: 'default',
      ...part,
    },
    '127.0.0.1',
    0,
  );
  return Object.assign(fixture, {
    url: `http://127.0.0.1:${server.port}`,
    port: server.port,
    server,
    close: () => server.close(100),
  });
}

/** A request through plain `node:http`, which sends exactly these headers and path. */
export async function rawRequest(
  port: number,
  options: { method?: string; path: string; headers?: Record<string, string>; body?: string | Uint8Array },
): Promise<{ status: number; headers: Record<string, string | string[] | undefined>; body: string }> {
  const { request } = await import('node:http');
  return await new Promise((resolve, reject) => {
    const call = request(
      { host: '127.0.0.1', port, method: options.method ?? 'GET', path: options.path, headers: options.headers ?? {} },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: Buffer.concat(chunks).toString(),
          }),
        );
        response.on('error', reject);
      },
    );
    call.on('error', reject);
    call.end(options.body);
  });
}
