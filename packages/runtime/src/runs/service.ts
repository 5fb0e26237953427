import type {
  AdmissionResult,
  CancelResult,
  CreateRun,
  Run,
  RunService,
  RunStatus,
  StreamItem,
} from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import { unlessAborted } from '../common/waiting.ts';
import { type ReaderParts, StreamReader } from '../stream/reader.ts';
import { belongs } from './cancel.ts';
import type { RunManager } from './manager.ts';
import type { RunParts } from './ports.ts';
import type { RunRegistry } from './registry.ts';

/** Tries and first pause of a question to the store, in milliseconds, while a client waits for the answer of a run. */
const PATIENCE = { tries: 4, backoffMs: 250 };

/** The run service of one process: the manager for what changes runs, the store and the log for everything that is read. */
export class LocalRunService implements RunService {
  readonly #parts: RunParts;
  readonly #manager: RunManager;
  readonly #registry: RunRegistry;
  readonly #reading: ReaderParts;

  constructor(parts: { base: RunParts; manager: RunManager; registry: RunRegistry; reading: ReaderParts }) {
    this.#parts = parts.base;
    this.#manager = parts.manager;
    this.#registry = parts.registry;
    this.#reading = parts.reading;
  }

  create(input: CreateRun, signal?: AbortSignal): Promise<AdmissionResult> {
    return this.#manager.create(input, signal);
  }

  async get(input: { runId: string; threadId: string; userId: string }): Promise<Run | null> {
    const run = await this.#parts.stores.runs.get(input.runId);
    return run !== null && belongs(run, input) ? run : null;
  }

  list(input: {
    threadId: string;
    userId: string;
    status: RunStatus | null;
    limit: number;
    offset: number;
  }): Promise<readonly Run[]> {
    return this.#parts.stores.runs.list(input);
  }

  cancel(input: Parameters<RunService['cancel']>[0]): Promise<CancelResult> {
    return this.#manager.cancel(input);
  }

  async *stream(input: Parameters<RunService['stream']>[0]): AsyncGenerator<StreamItem> {
    const local = this.#registry.get(input.runId)?.run;
    const run = local !== undefined && belongs(local, input) ? local : await this.get(input);
    if (run === null) {
      throw new ReindeerError('not_found', `There is no run ${input.runId} on thread ${input.threadId}.`);
    }
    const asked = input.modes ?? run.request.streamModes;
    const modes = new Set(asked.length === 0 ? ['values'] : asked);
    const { lastEventId, heartbeatMs, signal } = input;
    yield* new StreamReader(this.#reading, { run, lastEventId, modes, heartbeatMs, signal }).read();
  }

  async join(input: { runId: string; threadId: string; userId: string; signal?: AbortSignal }): Promise<Run | null> {
    const { clock } = this.#parts.surroundings;
    const { streams } = this.#reading;
    const over = input.signal === undefined ? streams.over : AbortSignal.any([input.signal, streams.over]);
    for (;;) {
      input.signal?.throwIfAborted();
      if (over.aborted) throw stopping();
      const local = this.#registry.get(input.runId);
      if (local !== undefined && belongs(local.run, input)) {
        await unlessAborted(local.settled, over).catch(() => undefined);
        // The row as it was written here: it does not change any more.
        if (local.final !== null) return local.final;
        if (over.aborted) continue;
      }
      // Who waits for long meets a store that is away for a moment.
      const run = await retry(
        clock,
        PATIENCE,
        () => this.get(input),
        () => over.aborted,
      );
      if (run === null || run.acknowledged) return run;
      // Held elsewhere, or given up here and soon taken over by recovery: the row is looked at again after a while.
      await clock.sleep(this.#parts.settings.pollRemoteMs, over).catch(() => undefined);
    }
  }

  async disconnected(input: { runId: string; threadId: string }): Promise<void> {
    const local = this.#registry.get(input.runId);
    if (this.#reading.streams.readersOf(input.runId) > 0 || this.#reading.streams.over.aborted) return;
    // Only a run of this process, and only when nobody else reads it here (RS-16); or one that waits for its turn, which is nobody's.
    const run = local?.run ?? (await this.#parts.stores.runs.get(input.runId));
    if (run === null || (local === undefined && !run.queued)) return;
    if (run.threadId !== input.threadId || run.onDisconnect !== 'cancel') return;
    const { userId } = run;
    await this.#manager.cancel({ ...input, userId, action: 'interrupt', wait: false });
  }

  async remove(input: {
    runId: string;
    threadId: string;
    userId: string;
  }): Promise<'removed' | 'active' | 'not_found'> {
    const run = await this.get(input);
    return run === null ? 'not_found' : this.#parts.stores.runs.remove(input);
  }
}

const stopping = () =>
  new ReindeerError('shutting_down', 'The server is stopping; the run goes on after the restart.', { retryable: true });
