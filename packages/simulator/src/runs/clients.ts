import type { MemoryDatabase } from '@reindeer/database';
import type { AdmissionResult, CreateRun, MultitaskStrategy, Run } from '@reindeer/protocol';
import { EMPTY_REQUEST } from '@reindeer/protocol';
import type { Runtime } from '@reindeer/runtime';
import type { SeededRandom } from '@reindeer/testkit';
import type { Chronicle } from '../frame/chronicle.ts';
import type { Incarnation } from '../frame/incarnation.ts';
import type { Scheduler } from '../frame/scheduler.ts';
import type { Checker } from './checker.ts';
import { ASSISTANT } from './graph.ts';
import type { Program } from './program.ts';
import { asInput, randomProgram } from './program.ts';

/** Sends a request to one of the processes, whichever is up. */
export type Ask = <T>(work: (runtime: Runtime, signal: AbortSignal) => Promise<T>) => Promise<T>;

export interface Reached {
  readonly runtime: Runtime;
  readonly incarnation: Incarnation;
  /** Fires when its connections are closed. */
  readonly signal: AbortSignal;
}

export interface ClientParts {
  readonly random: SeededRandom;
  readonly scheduler: Scheduler;
  readonly database: MemoryDatabase;
  readonly checker: Checker;
  readonly chronicle: Chronicle;
  readonly ask: Ask;
  /** One of the processes that listen right now. */
  readonly reach: () => Reached | null;
  readonly healed: () => boolean;
  readonly threads: readonly string[];
  /** Clients stop asking for new things at this time. */
  readonly until: number;
}

export const USER = 'user';
const STRATEGIES: readonly MultitaskStrategy[] = ['reject', 'reject', 'enqueue', 'enqueue', 'interrupt', 'rollback'];

/** Starts runs, with an idempotency key as a rule, and asks again with the same key when it got no answer. */
export async function submitter(parts: ClientParts, name: string): Promise<void> {
  const { random, scheduler, chronicle } = parts;
  for (let n = 0; scheduler.now < parts.until; n += 1) {
    await scheduler.sleep(random.below(6_000));
    const key = random.chance(0.85) ? `${name}-${random.chance(0.15) ? Math.max(0, n - 1) : n}` : null;
    const request = {
      threadId: random.pick(parts.threads),
      strategy: random.pick(STRATEGIES),
      program: randomProgram(random),
      crashPolicy: random.chance(0.85) ? ('resume' as const) : ('error' as const),
    };
    for (let attempt = 1; attempt <= 4; attempt += 1) {
      try {
        const result = await parts.ask((runtime, signal) => create(runtime, request, key, signal));
        if (
          key !== null &&
          (result.outcome === 'admitted' || result.outcome === 'queued' || result.outcome === 'reused')
        )
          parts.checker.keyAnswered(
            key,
            result.run.runId,
            JSON.stringify([request.threadId, request.strategy, request.program]),
          );
        chronicle.note(() => `${name} got ${result.outcome} ${'run' in result ? result.run.runId : ''}`);
        break;
      } catch (error) {
        chronicle.note(() => `${name} got no answer: ${String(error)}`);
        // Without a key a second request would be a second run.
        if (key === null) break;
        await scheduler.sleep(50 + random.below(1_500));
      }
    }
  }
}

function create(
  runtime: Runtime,
  request: { threadId: string; strategy: MultitaskStrategy; program: Program; crashPolicy: 'resume' | 'error' },
  key: string | null,
  signal: AbortSignal,
): Promise<AdmissionResult> {
  const input: CreateRun = {
    threadId: request.threadId,
    userId: USER,
    assistantId: ASSISTANT,
    request: {
      ...EMPTY_REQUEST,
      input: asInput(request.program),
    },
    metadata: {},
    multitaskStrategy: request.strategy,
    onDisconnect: 'continue',
    crashPolicy: request.crashPolicy,
    createThread: true,
    idempotencyKey: key,
  };
  return runtime.runs.create(input, signal);
}

/** Cancels runs, waits for their stop in half of the cases, and believes what it is told. */
export async function canceller(parts: ClientParts): Promise<void> {
  const { random, scheduler, checker, chronicle } = parts;
  while (scheduler.now < parts.until) {
    await scheduler.sleep(random.below(9_000));
    const active = [...parts.database.runs.values()]
      .map(({ run }) => run)
      .filter((run) => !run.acknowledged && run.kind === 'run');
    if (active.length === 0) continue;
    const run: Run = random.pick(active);
    const action = random.chance(0.5) ? 'interrupt' : 'rollback';
    const wait = random.chance(0.5);
    try {
      const answer = await parts.ask((runtime, signal) =>
        runtime.runs.cancel({ runId: run.runId, threadId: run.threadId, userId: USER, action, wait, signal }),
      );
      chronicle.note(() => `canceller got ${answer.outcome} for ${run.runId}`);
      if (answer.outcome === 'accepted') checker.cancelled(run.runId, answer.stopped);
    } catch (error) {
      chronicle.note(() => `canceller got no answer: ${String(error)}`);
    }
  }
}

/** Takes a thread's only slot for a while, as an editor of its state does. */
export async function editor(parts: ClientParts): Promise<void> {
  const { random, scheduler, chronicle } = parts;
  let edits = 0;
  while (scheduler.now < parts.until) {
    await scheduler.sleep(2_000 + random.below(15_000));
    const threadId = random.pick(parts.threads);
    try {
      edits += 1;
      const values = { state: { id: `edit-${edits}`, takes: random.below(random.chance(0.3) ? 20_000 : 500) } };
      const answer = await parts.ask((runtime) =>
        runtime.threads.updateState({ threadId, userId: USER, values, checkpointId: null, asNode: null }),
      );
      chronicle.note(() => `editor got ${answer.outcome} for ${threadId}`);
    } catch (error) {
      chronicle.note(() => `editor got no answer: ${String(error)}`);
    }
  }
}

/** Pages through a thread's history as a client that reconnects does, and must never miss a fact. */
export async function reader(parts: ClientParts, name: string): Promise<void> {
  const { random, scheduler, checker } = parts;
  const threadId = random.pick(parts.threads);
  let after = 0;
  while (scheduler.now < parts.until) {
    await scheduler.sleep(300 + random.below(4_000));
    try {
      const page = await parts.ask((runtime) =>
        runtime.threads.facts({ threadId, userId: USER, runId: null, afterSeq: after, limit: 1 + random.below(20) }),
      );
      const seqs = page?.facts.map((fact) => fact.seq) ?? [];
      checker.readerSaw(`${name}@${threadId}`, seqs);
      after = seqs.at(-1) ?? after;
    } catch {
      // It asks again at the same place.
    }
  }
}

/** What one reader has received of one run, over all its connections. */
export interface Received {
  readonly reader: string;
  readonly runId: string;
  /** Sequences of the facts that came, in the order in which they came. */
  readonly seqs: number[];
  /** Cursor of the last event that had one. */
  cursor: string | null;
}

/** Reads streams of runs, from any process to the end, sometimes slowly, and connects again with its cursor wherever it is cut off. */
export async function follower(parts: ClientParts, name: string): Promise<void> {
  const { random, scheduler, database } = parts;
  while (scheduler.now < parts.until) {
    await scheduler.sleep(random.below(6_000));
    const runs = [...database.runs.values()].filter(({ run }) => run.kind === 'run');
    // Mostly one of the newest: it is still at work.
    const row = random.chance(0.8) ? runs.slice(-2) : runs;
    if (row.length === 0) continue;
    const { run } = random.pick(row);
    const received: Received = { reader: name, runId: run.runId, seqs: [], cursor: null };
    parts.checker.follows(received);
    const slow = random.chance(0.3);
    for (let ended = false; !ended; ) {
      const at = parts.reach();
      if (at !== null) ended = await readOn(parts, at, run, received, slow);
      if (!ended) await scheduler.sleep(100 + random.below(1_500));
    }
    parts.checker.followed(received);
  }
}

/** One connection. True = the end was heard. */
async function readOn(
  parts: ClientParts,
  { runtime, incarnation, signal }: Reached,
  { runId, threadId }: Run,
  received: Received,
  slow: boolean,
): Promise<boolean> {
  const { random, scheduler, checker, chronicle } = parts;
  const gone = new AbortController();
  const stream = runtime.runs.stream({
    runId,
    threadId,
    userId: USER,
    lastEventId: received.cursor,
    modes: ['messages-tuple', 'custom'],
    heartbeatMs: 15_000,
    signal: gone.signal,
  });
  const events = stream[Symbol.asyncIterator]();
  /** Busy with something else, until the connection is closed. */
  const dawdle = async (): Promise<void> => {
    const until = scheduler.now + random.below(15_000);
    while (scheduler.now < until && !signal.aborted && incarnation.alive) await scheduler.sleep(200);
  };
  try {
    for (;;) {
      const step = await incarnation.request(() => events.next(), 40_000);
      if (step.done === true) return false;
      if (step.value === 'heartbeat') continue;
      const { id, event, data } = step.value;
      chronicle.note(() => `${received.reader} hears ${event} ${id ?? ''} of ${runId} from ${incarnation.name}`);
      checker.hears(received, event, id, data);
      if (id !== null) received.cursor = id;
      if (event === 'end') return true;
      if (slow && !parts.healed() && random.chance(0.3)) await dawdle();
    }
  } catch (error) {
    chronicle.note(() => `${received.reader} is cut off from ${runId}: ${String(error)}`);
    return false;
  } finally {
    gone.abort(new Error('The reader has left.'));
    void Promise.resolve(events.return?.()).catch(() => undefined);
  }
}
