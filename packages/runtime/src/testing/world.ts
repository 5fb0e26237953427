import { MemoryDatabase, openMemory } from '@reindeer/database';
import type {
  AdmissionResult,
  CancelAction,
  CancelResult,
  CreateRun,
  GraphFactory,
  Json,
  Run,
  RunRequest,
  Stores,
  StreamEvent,
  StreamItem,
  Surroundings,
  TokenRelay,
} from '@reindeer/protocol';
import { EMPTY_REQUEST } from '@reindeer/protocol';
import {
  type Deferred,
  deferred,
  flush,
  type TestSurroundings,
  testSurroundings,
  type VirtualClock,
} from '@reindeer/testkit';
import { createRuntime, type Runtime, type RuntimeParts } from '../runtime.ts';
import { type Script, scriptedFactory } from './scripted-graph.ts';

export const USER = 'ann';

export interface World {
  readonly runtime: Runtime;
  readonly stores: Stores;
  readonly surroundings: TestSurroundings;
  /** Creates a run; the request may be given in part. */
  create(
    input?: Partial<Omit<CreateRun, 'request'>> & { request?: Partial<RunRequest> },
    signal?: AbortSignal,
  ): Promise<AdmissionResult>;
  /** Creates a run that must be admitted. */
  admitted(input?: Parameters<World['create']>[0]): Promise<Run>;
  cancel(run: Run, action?: CancelAction, wait?: boolean): Promise<CancelResult>;
  /** Waits for a run's acknowledgement. */
  ended(run: Run): Promise<Run>;
  read(
    run: Run,
    options?: { lastEventId?: string | null; modes?: readonly string[]; signal?: AbortSignal },
  ): AsyncIterable<StreamItem>;
}

export interface WorldOptions {
  readonly script?: Script;
  readonly factory?: GraphFactory;
  readonly stores?: (stores: Stores) => Stores;
  /** Stores to use instead of memory ones. */
  readonly opened?: Stores;
  /** A real clock, for stores in another thread. */
  readonly real?: Surroundings;
  readonly database?: MemoryDatabase;
  readonly clock?: VirtualClock;
  readonly seed?: number;
  readonly settings?: RuntimeParts['settings'];
  readonly hooks?: RuntimeParts['hooks'];
  readonly relay?: TokenRelay;
  readonly workspaces?: RuntimeParts['workspaces'];
}

const ECHO: Script = { model: (messages) => ({ text: `You said: ${String(messages.at(-1)?.content ?? '')}` }) };

/** One process of the runtime on memory stores and a virtual clock. Several may share a database and a clock. */
export function world(options: WorldOptions = {}): World {
  const surroundings = testSurroundings({
    seed: options.seed ?? 1,
    ...(options.clock === undefined ? {} : { clock: options.clock }),
  });
  const database = options.database ?? new MemoryDatabase(surroundings.random);
  const opened = options.opened ?? openMemory({ surroundings, database });
  const stores = options.stores?.(opened) ?? opened;
  const factory = options.factory ?? scriptedFactory(options.script ?? ECHO);
  const runtime = createRuntime({
    stores,
    graphs: new Map([[factory.assistantId, factory]]),
    surroundings: options.real ?? surroundings,
    settings: options.settings ?? {},
    hooks: options.hooks ?? {},
    ...(options.relay === undefined ? {} : { relay: options.relay }),
    ...(options.workspaces === undefined ? {} : { workspaces: options.workspaces }),
  });
  const create: World['create'] = (input = {}, signal) =>
    runtime.runs.create(
      {
        threadId: 'thread-1',
        userId: USER,
        assistantId: factory.assistantId,
        metadata: {},
        multitaskStrategy: 'reject',
        onDisconnect: 'continue',
        crashPolicy: null,
        createThread: true,
        idempotencyKey: null,
        ...input,
        request: request(input.request ?? {}),
      },
      signal,
    );
  return {
    runtime,
    stores,
    surroundings,
    create,
    admitted: async (input) => {
      const result = await create(input);
      if (result.outcome !== 'admitted') throw new Error(`not admitted: ${JSON.stringify(result)}`);
      return result.run;
    },
    cancel: (run, action = 'interrupt', wait = false) =>
      runtime.runs.cancel({ runId: run.runId, threadId: run.threadId, userId: run.userId, action, wait }),
    ended: async (run) => {
      const end = await runtime.runs.join({ runId: run.runId, threadId: run.threadId, userId: run.userId });
      if (end === null) throw new Error('the run is gone');
      return end;
    },
    read: (run, read = {}) =>
      runtime.runs.stream({
        runId: run.runId,
        threadId: run.threadId,
        userId: run.userId,
        lastEventId: read.lastEventId ?? null,
        modes: read.modes ?? null,
        heartbeatMs: 15_000,
        signal: read.signal ?? new AbortController().signal,
      }),
  };
}

export const human = (text: string, id?: string): Json => ({
  type: 'human',
  content: text,
  ...(id === undefined ? {} : { id }),
});

export function request(part: Partial<RunRequest>): RunRequest {
  return { ...EMPTY_REQUEST, input: { messages: [human('hello')] }, streamModes: ['values'], ...part };
}

/** A model that answers when the test says so, and gives up when its run is stopped. */
export function gated(): { script: Script; asked: Promise<void>; answer: Deferred<string> } {
  const asked = deferred();
  const answer = deferred<string>();
  const model: Script['model'] = async (_messages, context) => {
    asked.resolve();
    const aborted = new Promise<never>((_, reject) => {
      context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
    });
    return { text: await Promise.race([answer.promise, aborted]) };
  };
  return { script: { model }, asked: asked.promise, answer };
}

/** Texts of the messages in a thread's newest state. */
export async function messagesOf(w: World, threadId = 'thread-1'): Promise<string[]> {
  const state = await w.runtime.threads.state({ threadId, userId: USER, checkpointId: null, subgraphs: false });
  const messages = (state?.values.messages ?? []) as readonly { content: string }[];
  return messages.map(({ content }) => content);
}

/** Reads a stream to its end; heartbeats are left out. */
export async function collect(stream: AsyncIterable<StreamItem>): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  for await (const item of stream) if (item !== 'heartbeat') events.push(item);
  return events;
}

/** Texts of the messages in the newest `values` event. */
export function texts(events: readonly StreamEvent[]): string[] {
  const last = events.filter(({ event }) => event === 'values').at(-1);
  const values = JSON.parse(last?.data ?? '{}') as { messages?: { content: string }[] };
  return (values.messages ?? []).map(({ content }) => content);
}

/** Joins `messages` events by id as the SDK does: contents are appended, `remove` starts over. */
export function joined(events: readonly StreamEvent[], already: Map<string, string> = new Map()): Map<string, string> {
  for (const { event, data } of events) {
    if (event !== 'messages') continue;
    const [message] = JSON.parse(data) as [{ id: string; type: string; content: string }];
    if (message.type === 'remove') already.delete(message.id);
    else already.set(message.id, (already.get(message.id) ?? '') + message.content);
  }
  return already;
}

export { flush };
