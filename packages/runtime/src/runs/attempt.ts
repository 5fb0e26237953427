import type {
  AttemptContext,
  AttemptJournal,
  Effects,
  FactBody,
  Fenced,
  Json,
  Packed,
  Run,
  TokenSink,
  TokenUsage,
  ToolCallKey,
} from '@reindeer/protocol';
import { NO_USAGE, ReindeerError } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import { Packer } from '../saver/index.ts';
import type { TokenHub } from '../stream/token-hub.ts';
import { FactRecorder } from './fact-recorder.ts';
import type { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';

/** Task names kept per attempt: a step's tasks are named right before their writes are stored. */
const TASK_NAMES = 4_096;

/** One attempt of a run as its graph sees it. Everything on it is fenced by the attempt's token. */
export class Attempt implements AttemptContext {
  readonly run: Run;
  readonly attempt: number;
  readonly signal: AbortSignal;
  readonly journal: AttemptJournal;
  readonly effects: Effects;
  readonly tokens: TokenSink;
  readonly recorder: FactRecorder;
  readonly packer = new Packer();
  readonly #tasks = new Map<string, string>();
  #usage: TokenUsage = NO_USAGE;
  #stopReason: string | null = null;
  #failure: string | null = null;

  constructor(parts: RunParts, local: LocalRun, run: Run, hub: TokenHub) {
    this.run = run;
    this.attempt = run.attempt;
    this.signal = local.signal;
    this.effects = local.effects;
    this.tokens = hub;
    this.journal = new FencedJournal(parts, local, run, this.packer);
    this.recorder = new FactRecorder({
      log: parts.stores.log,
      surroundings: parts.surroundings,
      fence: local.fence,
      threadId: run.threadId,
      onFenced: () => local.stop({ kind: 'fenced' }),
    });
  }

  emit(data: Json, ns: readonly string[] = []): void {
    this.record({ kind: 'custom', ns: ns.join('|'), data });
  }

  /** A fact of this attempt; refused silently once the run is fenced. */
  record(body: FactBody, key?: string): void {
    this.recorder.add(body, key);
  }

  nameTask(taskId: string, node: string): void {
    this.#tasks.set(taskId, node);
    if (this.#tasks.size <= TASK_NAMES) return;
    const [oldest] = this.#tasks.keys();
    if (oldest !== undefined) this.#tasks.delete(oldest);
  }

  taskName(taskId: string): string | undefined {
    return this.#tasks.get(taskId);
  }

  countUsage(usage: { readonly inputTokens: number; readonly outputTokens: number }): void {
    const before = this.#usage;
    this.#usage = {
      inputTokens: before.inputTokens + usage.inputTokens,
      outputTokens: before.outputTokens + usage.outputTokens,
      totalTokens: before.totalTokens + usage.inputTokens + usage.outputTokens,
      modelCalls: before.modelCalls + 1,
    };
  }

  stopReason(reason: string): void {
    this.#stopReason ??= reason;
  }

  fail(message: string): void {
    this.#failure ??= message;
  }

  get outcome(): {
    readonly usage: TokenUsage;
    readonly stopReason: string | null;
    readonly failure: string | null;
  } {
    return { usage: this.#usage, stopReason: this.#stopReason, failure: this.#failure };
  }
}

/**
 * The tool journal under an attempt's token (D7). A call that cannot be journalled never starts; a fenced answer stops the run. A finish
 * whose answer was lost is repeated: the store keeps the first result.
 */
class FencedJournal implements AttemptJournal {
  readonly #parts: RunParts;
  readonly #local: LocalRun;
  readonly #run: Run;
  readonly #packer: Packer;

  constructor(parts: RunParts, local: LocalRun, run: Run, packer: Packer) {
    this.#parts = parts;
    this.#local = local;
    this.#run = run;
    this.#packer = packer;
  }

  async begin(call: Parameters<AttemptJournal['begin']>[0]): ReturnType<AttemptJournal['begin']> {
    if (this.#local.effects.closed) {
      throw new ReindeerError('aborted', `Not started, because the run is stopping: ${call.name}`);
    }
    const { clock } = this.#parts.surroundings;
    // Safe to repeat: a begin under the same token is the same begin.
    const answer = await this.#repeat(() =>
      this.#parts.stores.journal.begin({
        fence: this.#local.fence,
        key: this.#key(call),
        toolCallId: call.toolCallId,
        name: call.name,
        attempt: this.#run.attempt,
        again: call.again,
        now: clock.now(),
      }),
    );
    if (answer.outcome === 'fenced') this.#fenced();
    return answer;
  }

  async finish(call: Parameters<AttemptJournal['finish']>[0]): Promise<unknown> {
    const { clock } = this.#parts.surroundings;
    const result = this.#packer.pack(call.result);
    const answer: Fenced<{ readonly result: Packed }> = await this.#repeat(() =>
      this.#parts.stores.journal.finish({
        fence: this.#local.fence,
        key: this.#key(call),
        outcome: call.outcome,
        result,
        now: clock.now(),
      }),
    );
    if (answer.outcome === 'fenced') return this.#fenced();
    if (answer.result.json !== result.json) return this.#packer.unpack(answer.result);
    // The store has these bodies now: the step's own writes need not carry them again.
    this.#packer.markStored(result.messages);
    return call.result;
  }

  unpack(packed: Packed): unknown {
    return this.#packer.unpack(packed);
  }

  #repeat<T>(work: () => Promise<T>): Promise<T> {
    const { writeTries, writeBackoffMs } = this.#parts.settings;
    const plan = { tries: writeTries, backoffMs: writeBackoffMs };
    return retry(this.#parts.surroundings.clock, plan, work, () => this.#local.fenced);
  }

  #key(call: { readonly messageId: string; readonly index: number }): ToolCallKey {
    return { threadId: this.#run.threadId, messageId: call.messageId, index: call.index };
  }

  #fenced(): never {
    this.#local.stop({ kind: 'fenced' });
    throw new ReindeerError('fenced', 'The run is held by somebody else now; this attempt ends.');
  }
}
