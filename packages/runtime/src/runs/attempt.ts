import type {
  AttemptContext,
  AttemptJournal,
  Effects,
  FactBody,
  JournalBegin,
  Json,
  Packed,
  Run,
  TokenSink,
  TokenUsage,
  ToolCallKey,
} from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { retry } from '../common/retry.ts';
import type { LeaseKeeper } from '../leases/keeper.ts';
import { Packer } from '../saver/index.ts';
import type { RunStreams } from '../stream/streams.ts';
import type { TokenHub } from '../stream/token-hub.ts';
import { OrderedTokens } from '../writes/ordered-tokens.ts';
import { WriteQueue } from '../writes/write-queue.ts';
import { FactRecorder } from './fact-recorder.ts';
import type { LocalRun } from './local-run.ts';
import type { RunParts } from './ports.ts';
import { RunFiles } from './run-files.ts';
import { UsageMeter } from './usage.ts';

/** Task names kept per attempt: a step's tasks are named right before their writes are stored. */
const TASK_NAMES = 4_096;

export type AttemptParts = RunParts & {
  readonly keeper: Pick<LeaseKeeper, 'check'>;
  readonly streams: Pick<RunStreams, 'expect'>;
};

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
  /** What the attempt writes, on its way to the stores. */
  readonly writes: WriteQueue;
  readonly #tasks = new Map<string, string>();
  readonly files: RunFiles | null;
  readonly #secrets: Readonly<Record<string, string>> | null;
  readonly #usage: UsageMeter;
  #stopReason: string | null = null;
  #failure: string | null = null;

  /** @param earlier what earlier attempts of the run used */
  constructor(parts: AttemptParts, local: LocalRun, run: Run, hub: TokenHub, earlier: UsageMeter = new UsageMeter()) {
    this.#usage = earlier;
    this.files = parts.workspaces === null ? null : new RunFiles(parts, parts.workspaces, local, run);
    this.run = run;
    this.attempt = run.attempt;
    this.signal = local.signal;
    this.#secrets = local.secrets;
    this.effects = local.effects;
    const { writeTries, writeBackoffMs } = parts.settings;
    this.writes = new WriteQueue({
      stores: parts.stores,
      clock: parts.surroundings.clock,
      plan: { tries: writeTries, backoffMs: writeBackoffMs },
      onFenced: () => local.stop({ kind: 'fenced' }),
      onSent: () => parts.streams.expect(run.runId),
      onStored: (stored) => tokens.release(stored),
    });
    const tokens = new OrderedTokens(hub, this.writes);
    this.tokens = tokens;
    this.journal = new FencedJournal(parts, local, run, this.packer, this.writes);
    this.recorder = new FactRecorder({
      writes: this.writes,
      log: parts.stores.log,
      surroundings: parts.surroundings,
      fence: local.fence,
      threadId: run.threadId,
      onFenced: () => local.stop({ kind: 'fenced' }),
    });
  }

  get secrets(): Readonly<Record<string, string>> {
    return this.#secrets ?? {};
  }

  emit(data: Json, ns: readonly string[] = [], key?: string): void {
    this.record({ kind: 'custom', ns: ns.join('|'), data }, key);
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

  countUsage(usage: Parameters<AttemptContext['countUsage']>[0]): void {
    this.#usage.add(usage);
  }

  usage(): TokenUsage {
    return this.#usage.total();
  }

  async touchFiles(): Promise<void> {
    await this.files?.touch();
  }

  async undelivered(): Promise<readonly string[]> {
    return (await this.files?.undelivered()) ?? [];
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
    return { usage: this.#usage.total(), stopReason: this.#stopReason, failure: this.#failure };
  }
}

/**
 * The tool journal under an attempt's token (D7). An effect starts behind its entry and behind everything that the attempt wrote before
 * it; a call that cannot be journalled never starts. The end of a call that this attempt began is sent and not waited for: what the
 * step writes after it is stored behind it.
 */
class FencedJournal implements AttemptJournal {
  readonly #parts: AttemptParts;
  readonly #local: LocalRun;
  readonly #run: Run;
  readonly #packer: Packer;
  readonly #writes: WriteQueue;
  /** Calls that this attempt began and that have not ended: the first end of each is the one that the store will keep. */
  readonly #begun = new Set<string>();

  constructor(parts: AttemptParts, local: LocalRun, run: Run, packer: Packer, writes: WriteQueue) {
    this.#parts = parts;
    this.#local = local;
    this.#run = run;
    this.#packer = packer;
    this.#writes = writes;
  }

  async begin(call: Parameters<AttemptJournal['begin']>[0]): Promise<JournalBegin> {
    if (this.#local.effects.closed) {
      throw new ReindeerError('aborted', `Not started, because the run is stopping: ${call.name}`);
    }
    // Safe to repeat: a begin under the same token is the same begin.
    const answer = (await this.#writes.settle({
      kind: 'begin',
      input: {
        fence: this.#local.fence,
        key: this.#key(call),
        toolCallId: call.toolCallId,
        name: call.name,
        attempt: this.#run.attempt,
        again: call.again,
        now: this.#parts.surroundings.clock.now(),
      },
    })) as JournalBegin;
    // However long the answer took: nothing begins under a lease that has run out (RL-04).
    this.#parts.keeper.check(this.#local.fence);
    this.#local.signal.throwIfAborted();
    if (answer.outcome === 'begin') this.#begun.add(nameOf(call));
    return answer;
  }

  async finish(call: Parameters<AttemptJournal['finish']>[0]): Promise<unknown> {
    const result = this.#packer.pack(call.result);
    const write = {
      kind: 'finish' as const,
      input: {
        fence: this.#local.fence,
        key: this.#key(call),
        outcome: call.outcome,
        result,
        now: this.#parts.surroundings.clock.now(),
      },
    };
    const isFirst = this.#begun.delete(nameOf(call));
    const sent = isFirst ? this.#writes.send(write) : this.#writes.settle(write);
    // The step's own writes come behind this one: they need not carry these bodies again.
    this.#packer.markStored(result.messages);
    const answer = await sent;
    if (answer === undefined || !('result' in answer) || answer.result.json === result.json) return call.result;
    return this.#packer.unpack(answer.result);
  }

  /** Behind its begin, which is stored. */
  async retract(call: Parameters<AttemptJournal['retract']>[0]): Promise<void> {
    const { stores, surroundings, settings } = this.#parts;
    const { fence } = this.#local;
    const plan = { tries: settings.writeTries, backoffMs: settings.writeBackoffMs };
    const take = () => stores.journal.retract({ fence, key: this.#key(call) });
    const answer = await retry(surroundings.clock, plan, take, () => this.#local.fenced);
    if (answer.outcome === 'fenced') this.#local.stop({ kind: 'fenced' });
    if (this.#local.fenced) this.#local.signal.throwIfAborted();
    this.#begun.delete(nameOf(call));
  }

  unpack(packed: Packed): unknown {
    return this.#packer.unpack(packed);
  }

  #key(call: { readonly messageId: string; readonly index: number }): ToolCallKey {
    return { threadId: this.#run.threadId, messageId: call.messageId, index: call.index };
  }
}

const nameOf = (call: { readonly messageId: string; readonly index: number }): string =>
  `${call.messageId}#${call.index}`;
