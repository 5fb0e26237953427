import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import {
  type AttemptContext,
  type AttemptJournal,
  type Clock,
  type Effects,
  type Json,
  ReindeerError,
  type Run,
  type TokenSink,
  type TokenUsage,
} from '@reindeer/protocol';
import { AttemptScope } from '../loop/scope.ts';

/**
 * What one sub-agent still does to the world: its own part of the run's effects. The run waits for all of them, a slot for these.
 * States: open → closed; a closed one starts nothing (D6).
 */
class ChildEffects implements Effects {
  readonly #parent: Effects;
  readonly #signal: AbortSignal;
  readonly #clock: Clock;
  readonly #live = new Map<symbol, string>();
  #waiting: (() => void)[] = [];

  constructor(parent: Effects, signal: AbortSignal, clock: Clock) {
    this.#parent = parent;
    this.#signal = signal;
    this.#clock = clock;
  }

  async track<T>(name: string, work: () => Promise<T>): Promise<T> {
    if (this.#signal.aborted)
      throw new ReindeerError('aborted', `Not started, because the sub-agent is stopping: ${name}`);
    const key = Symbol(name);
    this.#live.set(key, name);
    try {
      return await this.#parent.track(name, work);
    } finally {
      this.#live.delete(key);
      if (this.#live.size === 0) {
        for (const done of this.#waiting) done();
        this.#waiting = [];
      }
    }
  }

  live(): readonly string[] {
    return [...this.#live.values()];
  }

  /** Resolves when nothing is alive, however long that takes. */
  async drained(): Promise<void> {
    while (this.#live.size > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  async stopped(timeoutMs: number): Promise<readonly string[]> {
    if (this.#live.size === 0) return [];
    const timer = new AbortController();
    await Promise.race([this.drained(), this.#clock.sleep(timeoutMs, timer.signal).catch(() => undefined)]);
    timer.abort();
    return this.live();
  }
}

/**
 * The run's attempt as a sub-agent sees it: the same run, fence and journal; its own signal, effects and stop reason; tokens and events
 * under its namespace, so that none of them enters the stream of the lead agent (SA-24). Its failures are its own, not the run's.
 */
export class ChildAttempt implements AttemptContext {
  readonly run: Run;
  readonly attempt: number;
  readonly signal: AbortSignal;
  readonly journal: AttemptJournal;
  readonly effects: ChildEffects;
  readonly tokens: TokenSink;
  readonly #parent: AttemptContext;
  readonly #namespace: readonly string[];
  #guard: string | null = null;

  constructor(parts: {
    readonly parent: AttemptContext;
    readonly namespace: readonly string[];
    readonly signal: AbortSignal;
    readonly clock: Clock;
  }) {
    const { parent, namespace, signal, clock } = parts;
    this.#parent = parent;
    this.#namespace = namespace;
    this.run = parent.run;
    this.attempt = parent.attempt;
    this.signal = signal;
    this.journal = parent.journal;
    this.effects = new ChildEffects(parent.effects, signal, clock);
    this.tokens = {
      push: (chunk, metadata, inner = []) => parent.tokens.push(chunk, metadata, [...namespace, ...inner]),
    };
  }

  emit(data: Json, inner: readonly string[] = [], key?: string): void {
    this.#parent.emit(data, [...this.#namespace, ...inner], key);
  }

  async touchFiles(): Promise<void> {
    await this.#parent.touchFiles?.();
  }

  nameTask(taskId: string, node: string): void {
    this.#parent.nameTask(taskId, node);
  }

  /** Each call counts for the run when it is made: once, also when the sub-agent is cancelled (SA-07). */
  countUsage(usage: Parameters<AttemptContext['countUsage']>[0]): void {
    this.#parent.countUsage({ ...usage, caller: 'subagent' });
  }

  /** Of the whole run: its budget is one. */
  usage(): TokenUsage {
    return this.#parent.usage();
  }

  stopReason(reason: string): void {
    this.#guard ??= reason;
  }

  /** A failure shows in the messages; the run goes on. */
  fail(): void {}

  /** The first limit that spoke up. */
  get guard(): string | null {
    return this.#guard;
  }
}

/**
 * A sub-agent works in the sandbox of its thread, which it holds in a name of its own: the last one out gives it back, also when that is
 * a sub-agent which ends after its run.
 */
export class ChildScope extends AttemptScope {
  readonly #parent: AttemptScope;

  /** @param name unique among the sub-agents of the attempt */
  constructor(attempt: AttemptContext, parent: AttemptScope, model: BaseChatModel, name: string) {
    // The agent that delegates is theirs too: what it may not call is not theirs either.
    super(
      attempt,
      parent.leases,
      model,
      `${parent.owner}/${name}`,
      parent.contextWindow,
      parent.skills,
      undefined,
      parent.agent,
      parent.access,
    );
    this.#parent = parent;
  }

  override get delegated(): boolean {
    return true;
  }

  /** One queue per path for all agents of the run: they share the files (SL-17). */
  override serialise<T>(path: string, work: () => Promise<T>): Promise<T> {
    return this.#parent.serialise(path, work);
  }
}
