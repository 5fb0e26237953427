import { MemoryDatabase, openMemory } from '@reindeer/database';
import {
  type AdmissionResult,
  type ChannelFile,
  type ChannelMessage,
  type CreateRun,
  type Fact,
  ReindeerError,
  type Run,
  type Stores,
  type StreamItem,
  type Thread,
} from '@reindeer/protocol';
import { makeRun, type TestSurroundings, testSurroundings } from '@reindeer/testkit';
import { type ChannelAdapter, ChannelError, type OutgoingFile, type Sink, type Target } from '../adapter.ts';
import type { ChannelHost, StoredUpload } from '../host.ts';
import { ChannelService, type CredentialStore } from '../service.ts';
import { type ChannelSettings, DEFAULT_CHANNEL_SETTINGS } from '../settings.ts';

/** A messenger in memory: what was said to it can be read, and what it does next can be told. */
export class FakeAdapter implements ChannelAdapter {
  readonly textLimit = 500;
  readonly inboundLimit = 1_000;
  readonly log: string[] = [];
  /** What stands in the chats now, by id. */
  readonly shown = new Map<string, string>();
  readonly files = new Map<string, string>();
  /** Called before each act; what it throws is what the provider does. */
  before: (act: string) => void | Promise<void> = () => {};
  gapMs = 0;
  listening = 0;
  #sink: Sink | null = null;
  #count = 0;

  editGapMs(): number {
    return this.gapMs;
  }
  async identify() {
    await this.before('identify');
    return { accountId: '1', username: 'our_bot' };
  }
  async listen(sink: Sink, signal: AbortSignal): Promise<void> {
    await this.before('listen');
    this.#sink = sink;
    this.listening += 1;
    try {
      await new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason), { once: true }),
      );
    } finally {
      this.listening -= 1;
      this.#sink = null;
    }
  }
  async deliver(...messages: ChannelMessage[]): Promise<void> {
    if (this.#sink === null) throw new Error('Nobody listens.');
    await this.#sink(messages);
  }
  async send(_target: Target, text: string): Promise<string> {
    await this.before(`send ${text}`);
    this.#count += 1;
    const id = String(this.#count);
    this.shown.set(id, text);
    this.log.push(`send ${id}: ${text}`);
    return id;
  }
  async edit(_target: Target, id: string, text: string): Promise<'edited' | 'gone'> {
    await this.before(`edit ${text}`);
    if (!this.shown.has(id)) return 'gone';
    this.shown.set(id, text);
    this.log.push(`edit ${id}: ${text}`);
    return 'edited';
  }
  async sendFile(_target: Target, file: OutgoingFile): Promise<'sent' | 'too_large'> {
    await this.before(`file ${file.name}`);
    if (file.size > 1_000) return 'too_large';
    let text = '';
    for await (const chunk of await file.open()) text += new TextDecoder().decode(chunk);
    this.log.push(`file ${file.name}: ${text}`);
    return 'sent';
  }
  async fetch(file: ChannelFile): Promise<AsyncIterable<Uint8Array>> {
    const text = this.files.get(file.id);
    if (text === undefined) throw new ChannelError('refused', 'There is no such file.');
    return bytes(text);
  }
}

export async function* bytes(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}

/** A run whose words and end the test decides. */
export class FakeRun {
  run: Run;
  readonly facts: Fact[] = [];
  readonly input: CreateRun;
  readonly #items: StreamItem[] = [];
  #wake = Promise.withResolvers<void>();
  constructor(run: Run, input: CreateRun) {
    this.run = run;
    this.input = input;
  }

  get text(): string {
    const { messages } = this.input.request.input as { messages: { content: string }[] };
    return messages[0]?.content ?? '';
  }
  #push(item: StreamItem): void {
    this.#items.push(item);
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }
  chunk(content: string, id = 'a1', part: object = {}): void {
    this.#push({
      id: null,
      event: 'messages',
      data: JSON.stringify([{ type: 'AIMessageChunk', id, content, ...part }, {}]),
    });
  }
  fact(body: Fact['body']): void {
    const { threadId, runId } = this.run;
    this.facts.push({ threadId, runId, seq: this.facts.length + 1, at: 0, body });
  }
  say(content: string, part: object = {}): void {
    this.fact({ kind: 'message', ns: '', message: { type: 'ai', id: `m${this.facts.length}`, content, ...part } });
  }
  end(status: Run['status'] = 'success', part: Partial<Run> = {}, presented: readonly string[] = []): void {
    this.fact({
      kind: 'delivery',
      receipt: {
        presented: presented.length,
        by_tool: {},
        produced_paths: [],
        presented_paths: presented,
        matched_paths: [],
        stage: 'presented',
        satisfied: true,
        verification: 'checked',
      },
    });
    this.run = { ...this.run, status, acknowledged: true, ...part };
    this.#push({ id: null, event: 'end', data: '{}' });
  }
  async *stream(signal: AbortSignal): AsyncGenerator<StreamItem> {
    for (let at = 0; ; at += 1) {
      while (at >= this.#items.length) {
        if (signal.aborted) return;
        const over = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
        await Promise.race([this.#wake.promise, over]);
      }
      const item = this.#items[at];
      if (item === undefined || signal.aborted) return;
      yield item;
      if (item !== 'heartbeat' && item.event === 'end') return;
    }
  }
  async ended(signal?: AbortSignal): Promise<Run> {
    while (!this.run.acknowledged) {
      signal?.throwIfAborted();
      const over = new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true }));
      await Promise.race([this.#wake.promise, over]);
    }
    return this.run;
  }
}

/** What the rest of a server is to channels; it outlives their service, as runs outlive a process. */
export class FakeServer {
  readonly runs: FakeRun[] = [];
  readonly threads = new Map<string, Thread>();
  readonly uploads = new Map<string, string>();
  readonly outputs = new Map<string, string>();
  readonly goals = new Map<string, string>();
  refusal: (() => AdmissionResult) | null = null;

  host(): ChannelHost {
    const ofThread = (threadId: string, runId: string | null) =>
      this.runs.filter(({ run }) => run.threadId === threadId && run.runId === runId).flatMap(({ facts }) => facts);
    return {
      uploadLimit: 500,
      runs: {
        create: async (input) => {
          if (this.refusal !== null) return this.refusal();
          const known = this.runs.find((one) => one.input.idempotencyKey === input.idempotencyKey);
          if (known !== undefined) return { outcome: 'reused', run: known.run };
          const active = this.runs.find(({ run }) => run.threadId === input.threadId && !run.acknowledged);
          if (active !== undefined) return { outcome: 'conflict', reason: 'busy', active: active.run };
          const run = makeRun({
            runId: `run${this.runs.length + 1}`,
            threadId: input.threadId ?? '',
            userId: input.userId,
            status: 'running',
            acknowledged: false,
          });
          this.runs.push(new FakeRun(run, input));
          return { outcome: 'admitted', run, superseded: [] };
        },
        stream: ({ runId, signal }) => this.byId(runId).stream(signal),
        join: ({ runId, signal }) => this.byId(runId).ended(signal),
      },
      threads: {
        create: async ({ threadId, userId, metadata }) => {
          const id = threadId ?? '';
          const found = this.threads.get(id);
          if (found !== undefined) return { outcome: 'exists', thread: found };
          const thread: Thread = {
            threadId: id,
            userId,
            metadata,
            title: null,
            status: 'idle',
            createdAt: 0,
            updatedAt: 0,
          };
          this.threads.set(id, thread);
          return { outcome: 'created', thread };
        },
        get: async ({ threadId, userId }) => {
          const found = this.threads.get(threadId);
          return found?.userId === userId ? found : null;
        },
        messages: async ({ threadId, runId }) => ({
          facts: ofThread(threadId, runId).filter(({ body }) => body.kind === 'message'),
          hasMore: false,
        }),
        facts: async ({ threadId, runId, afterSeq }) => ({
          facts: ofThread(threadId, runId).filter(({ seq }) => seq > afterSeq),
          head: 0,
        }),
      },
      save: async ({ userId, threadId }, name, source, maxBytes): Promise<StoredUpload | null> => {
        if (name.includes('..')) return null;
        let text = '';
        for await (const chunk of source) text += new TextDecoder().decode(chunk);
        if (text.length > maxBytes) throw new ReindeerError('too_large', 'Too large.');
        this.uploads.set(`${userId}/${threadId}/${name}`, text);
        return { filename: name, size: text.length, path: `/mnt/user-data/uploads/${name}` };
      },
      output: async ({ userId, threadId }, path) => {
        const text = this.outputs.get(`${userId}/${threadId}${path}`);
        if (text === undefined) return null;
        return { name: path.slice(path.lastIndexOf('/') + 1), size: text.length, open: async () => bytes(text) };
      },
      agent: async (_userId, name) => {
        if (name === 'missing') return null;
        return { assistantId: 'lead_agent', agentName: name };
      },
      models: async () => ['small', 'large'],
      memory: async (userId) => [`${userId} likes tea`],
      skills: async () => ['chart'],
      goals: {
        limit: 100,
        read: async ({ threadId }) => this.goals.get(threadId) ?? null,
        write: async ({ threadId }, objective) => {
          if (objective === null) this.goals.delete(threadId);
          else this.goals.set(threadId, objective);
          return 'written';
        },
      },
    };
  }
  byId(runId: string): FakeRun {
    const found = this.runs.find(({ run }) => run.runId === runId);
    if (found === undefined) throw new Error(`There is no run ${runId}.`);
    return found;
  }
}

/** Channels of one process, or of several that share the database and the server. */
export class ChannelScene {
  readonly server = new FakeServer();
  readonly adapter = new FakeAdapter();
  readonly surroundings: TestSurroundings = testSurroundings();
  readonly database = new MemoryDatabase(this.surroundings.random);
  readonly services: ChannelService[] = [];
  /** The database does not answer. */
  storeAway = false;
  #count = 0;

  stores(): Stores {
    return openMemory({ surroundings: this.surroundings, database: this.database });
  }

  /** A process. */
  service(
    part: {
      readonly settings?: Partial<ChannelSettings>;
      readonly owner?: string;
      readonly adapter?: ChannelAdapter;
      readonly credentials?: CredentialStore;
      readonly configured?: Readonly<Record<string, string>>;
    } = {},
  ): ChannelService {
    const { telegram } = DEFAULT_CHANNEL_SETTINGS.providers;
    const configured = part.configured ?? { bot_token: '1:secret' };
    const service = new ChannelService({
      store: this.#store(),
      host: this.server.host(),
      settings: {
        ...DEFAULT_CHANNEL_SETTINGS,
        providers: { telegram: { ...telegram, credentials: configured } },
        ...part.settings,
      },
      surroundings: this.surroundings,
      owner: part.owner ?? 'one',
      credentials: part.credentials ?? { read: async () => null, write: async () => {} },
      make: async () => part.adapter ?? this.adapter,
    });
    this.services.push(service);
    return service;
  }

  #store(): Stores['channels'] {
    const { channels } = this.stores();
    return new Proxy(channels, {
      get: (target, name: keyof typeof channels) => (input: never) => {
        if (this.storeAway) return Promise.reject(new ReindeerError('store_unavailable', 'Away.', { retryable: true }));
        return target[name](input);
      },
    });
  }

  /** Lets everything that can happen now happen. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 5; turn += 1) await this.surroundings.clock.advance(0);
  }

  message(text: string, part: Partial<ChannelMessage> = {}): ChannelMessage {
    this.#count += 1;
    return {
      messageId: `in${this.#count}`,
      chatId: 'chat',
      group: false,
      topic: '',
      workspaceId: '',
      senderId: '7',
      senderName: 'Ann',
      text,
      files: [],
      answerTo: null,
      ...part,
    };
  }

  async say(text: string, part: Partial<ChannelMessage> = {}): Promise<void> {
    await this.adapter.deliver(this.message(text, part));
    await this.settle();
  }

  /** Connects an account, as a user would. */
  async connect(service: ChannelService, userId = 'ann', senderId = '7'): Promise<void> {
    const { code } = await service.connect(userId, 'telegram');
    await this.say(`/connect ${code}`, { senderId });
    this.adapter.log.length = 0;
  }

  async stop(): Promise<void> {
    const stopping = Promise.all(this.services.map((service) => service.stop()));
    await this.surroundings.clock.advance(60_000);
    await stopping;
  }
}
