import type { BaseChatModel } from '@langchain/core/language_models/chat_models';
import { type BaseMessage, ToolMessage } from '@langchain/core/messages';
import { type BaseCheckpointSaver, Command } from '@langchain/langgraph';
import { type AttemptContext, ReindeerError } from '@reindeer/protocol';
import { modelName } from '../loop/call-model.ts';
import { skillNames } from '../profiles/active.ts';
import type { ToolContext } from '../tools/define.ts';
import { withoutMiddle } from '../tools/text.ts';
import { metaOfText, SUCCESS, TOOL_META } from '../tools/tool-meta.ts';
import type { Slot } from './capacity.ts';
import type { ChildAgent } from './child-agents.ts';
import { ChildAttempt, ChildScope } from './child-attempt.ts';
import { CANCELLED, type Execution } from './executions.ts';
import { type SubagentOutcome, subagentMetadata } from './metadata.ts';
import { errorText } from './outcome.ts';
import { runChild } from './run-child.ts';
import { type SubagentType, TASK_TOOL } from './settings.ts';
import { StepCapture } from './steps.ts';
import type { DelegationParts, SubagentOptions, Subagents } from './subagents.ts';

/** LangGraph's key for the saver that a run lends its graph. */
const SAVER = '__pregel_checkpointer';
const LONGEST_RESULT = 50_000;

/** Characters of a result in the event about it; the tool's message has the whole. */
const SHOWN_RESULT = 8_192;

const EVENTS: Readonly<Record<SubagentOutcome['status'], string>> = {
  completed: 'task_completed',
  failed: 'task_failed',
  cancelled: 'task_cancelled',
  timed_out: 'task_timed_out',
  polling_timed_out: 'task_timed_out',
};

/** Stops of a run after which it does not go on: its sub-agents are cancelled. Any other stop leaves them to the next attempt. */
const FINAL_STOPS: readonly unknown[] = ['cancelled', 'superseded', 'timeout'];

/** One call of `task`. */
export class TaskCall {
  readonly #owner: Subagents;
  readonly #options: SubagentOptions;
  readonly #parts: DelegationParts;
  readonly #type: SubagentType;
  readonly #agentOf: (type: SubagentType) => ChildAgent;
  readonly #context: ToolContext;
  readonly #task: { readonly description: string; readonly prompt: string };
  readonly #attempt: AttemptContext;
  readonly #namespace: string;
  readonly #execution: Execution;
  readonly #steps = new StepCapture();
  #begun = false;
  #model: string | null = null;

  constructor(
    owner: Subagents,
    options: SubagentOptions,
    parts: DelegationParts,
    type: SubagentType,
    agentOf: (type: SubagentType) => ChildAgent,
    context: ToolContext,
    task: { readonly description: string; readonly prompt: string },
  ) {
    this.#owner = owner;
    this.#options = options;
    this.#parts = parts;
    this.#type = type;
    this.#agentOf = agentOf;
    this.#context = context;
    this.#task = task;
    this.#attempt = context.scope.attempt;
    const { messageId, index } = context.call;
    // The key of the call in the journal: the same in every attempt, and never that of another call (SA-03).
    this.#namespace = `tools:${encodeURIComponent(messageId)}:${index}`;
    this.#execution = owner.executions.create(options.surroundings.random.uuid(), `sub-agent ${type.name}`);
  }

  async run(): Promise<Command> {
    const execution = this.#execution;
    const run = this.#attempt.signal;
    const stop = this.#context.signal === undefined ? run : AbortSignal.any([run, this.#context.signal]);
    const onStop = (): void => {
      const { detail } = (run.reason ?? {}) as { detail?: { stop?: unknown } };
      if (run.aborted && FINAL_STOPS.includes(detail?.stop)) execution.settle(CANCELLED);
      execution.stop(stop.reason);
    };
    this.#emit('started', { type: 'task_started' });
    const reported = execution.terminal.then((outcome) => this.#emitEnd(outcome));
    if (stop.aborted) onStop();
    else stop.addEventListener('abort', onStop, { once: true });
    try {
      const work = this.#attempt.effects.track(execution.name, () => this.#work());
      await this.#bounded(work, stop);
      const { outcome } = execution;
      if (outcome === null) throw stop.reason ?? new ReindeerError('aborted', 'The sub-agent was stopped.');
      await reported;
      return this.#answer(outcome);
    } finally {
      stop.removeEventListener('abort', onStop);
      // The run is stopping and starts nothing more: then there is nothing to wait for either.
      if (!this.#begun) this.#forget();
    }
  }

  /** Waits for the end; for one that was told to end while the run goes on, no longer than the grace. */
  async #bounded(work: Promise<void>, stop: AbortSignal): Promise<void> {
    const first = await Promise.race([work, this.#execution.terminal]);
    if (first === undefined || stop.aborted) return work;
    const { clock, logger } = this.#options.surroundings;
    const timer = new AbortController();
    const late = clock.sleep(this.#owner.settings.endGraceMs, timer.signal).then(
      () => true,
      () => false,
    );
    const isLate = await Promise.race([work.then(() => false), late]);
    timer.abort(new ReindeerError('aborted', 'The wait is over.'));
    // Held by the registry and by the run's effects until it ends (SA-08).
    if (isLate) logger.warn('A sub-agent goes on closing after its answer was given', { name: this.#execution.name });
  }

  /** From the queue to the real end. Settles the execution; rejects only with what must end the run's attempt. */
  async #work(): Promise<void> {
    this.#begun = true;
    const execution = this.#execution;
    const { capacity } = this.#owner;
    const { clock } = this.#options.surroundings;
    const timer = new AbortController();
    let slot: Slot | null = null;
    let child: ChildAttempt | null = null;
    try {
      slot = await capacity.acquire(execution.id, execution.signal);
      execution.begin();
      clock.sleep(this.#type.timeoutMs, timer.signal).then(
        () => this.#timeOut(),
        () => undefined,
      );
      child = new ChildAttempt({
        parent: this.#attempt,
        namespace: [this.#namespace],
        signal: execution.signal,
        clock,
      });
      execution.settle(await this.#child(child));
    } catch (error) {
      const passes = execution.signal.aborted || isFault(error);
      if (passes && execution.outcome === null) throw error;
      execution.settle({ status: 'failed', stopReason: null, result: '', error: errorText(error) });
    } finally {
      const over = new ReindeerError('aborted', 'The sub-agent has ended.');
      timer.abort(over);
      execution.stop(over);
      // A terminal status is not the end: the slot goes when nothing of it acts any more (SA-28, SA-30).
      await child?.effects.drained();
      slot?.release();
      this.#forget();
    }
  }

  #forget(): void {
    this.#execution.end();
    this.#owner.executions.cleanup(this.#execution.id);
  }

  async #child(attempt: ChildAttempt): Promise<SubagentOutcome> {
    const type = this.#type;
    const { scope, configurable, runContext } = this.#context;
    const saver = configurable[SAVER] as BaseCheckpointSaver<string | number> | undefined;
    if (saver === undefined) throw new ReindeerError('internal', 'A sub-agent needs the saver of its run.');
    const model = await this.#chooseModel(scope.model);
    const { userId, threadId } = attempt.run;
    const skills = await this.#owner.skillsFor(
      type,
      { userId, threadId, signal: attempt.signal },
      skillNames(scope.agent),
    );
    attempt.signal.throwIfAborted();
    return runChild({
      type,
      agent: this.#agentOf(type),
      prompt: this.#task.prompt,
      preface: skills,
      namespace: this.#namespace,
      attempt,
      scope: new ChildScope(attempt, scope, model, this.#execution.id),
      saver,
      configurable,
      context: runContext,
      surroundings: this.#options.surroundings,
      onMessages: (news) => this.#report(news),
    });
  }

  async #chooseModel(ofRun: BaseChatModel | null): Promise<BaseChatModel> {
    const { model: name } = this.#type;
    const thinking = this.#context.runContext.thinking_enabled;
    const chosen =
      name === null
        ? null
        : await this.#parts.models.choose({
            name,
            ...(typeof thinking === 'boolean' ? { thinking } : {}),
            ...this.#parts.permitsOf(this.#context.scope.attempt.run),
          });
    const model = chosen?.model ?? ofRun;
    if (model === null) throw new ReindeerError('internal', 'The run has no model.');
    this.#model = chosen?.entry.name ?? modelName(model);
    return model;
  }

  #timeOut(): void {
    const seconds = Math.round(this.#type.timeoutMs / 1_000);
    const error = `The sub-agent was ended after ${seconds} s.`;
    this.#execution.settle({ status: 'timed_out', stopReason: null, result: '', error });
    this.#execution.stop(new ReindeerError('aborted', error));
  }

  #report(news: readonly BaseMessage[]): void {
    const before = this.#steps.count;
    const steps = this.#steps.take(news);
    for (const [n, step] of steps.entries())
      this.#emit(`step:${step.id}`, {
        type: 'task_running',
        message: step,
        message_index: before + n + 1,
        total_messages: before + steps.length,
        usage: { ...this.#steps.usage },
        model_name: this.#model,
      });
  }

  #emitEnd(outcome: SubagentOutcome): void {
    this.#emit('end', {
      type: EVENTS[outcome.status],
      ...this.#metadata(outcome),
      // As clients of the event know them.
      ...(outcome.error === null ? { result: outcome.result.slice(0, SHOWN_RESULT) } : { error: outcome.error }),
      usage: { ...this.#steps.usage },
      model_name: this.#model,
    });
  }

  /** Events stand in the lead agent's namespace, where its cards are. Their keys make a repeat by a later attempt no news. */
  #emit(part: string, data: Readonly<Record<string, unknown>>): void {
    const event = {
      ...data,
      task_id: this.#context.callId,
      execution_id: this.#namespace,
      subagent_type: this.#type.name,
      description: this.#task.description,
    };
    this.#attempt.emit(event as never, [], `task:${this.#namespace}:${part}`);
  }

  #metadata(outcome: SubagentOutcome) {
    return subagentMetadata(outcome, {
      model: this.#model,
      usage: this.#steps.usage,
      type: this.#type.name,
      description: this.#task.description,
      executionId: this.#namespace,
    });
  }

  /** The result for the lead agent, and its line in the ledger of the run. */
  #answer(outcome: SubagentOutcome): Command {
    const isDone = outcome.status === 'completed';
    const text = textFor(outcome);
    const message = new ToolMessage({
      content: text,
      tool_call_id: this.#context.callId,
      name: TASK_TOOL,
      status: isDone ? 'success' : 'error',
      additional_kwargs: {
        [TOOL_META]: isDone ? SUCCESS : metaOfText(text, 'error'),
        ...this.#metadata(outcome),
      },
    });
    const entry = {
      id: this.#namespace,
      run_id: this.#attempt.run.runId,
      tool_call_id: this.#context.callId,
      subagent_type: this.#type.name,
      description: this.#task.description,
      status: outcome.status,
      ...(outcome.result === '' ? {} : { result_brief: outcome.result.slice(0, BRIEF_IN_LEDGER) }),
      created_at: new Date(this.#options.surroundings.clock.now()).toISOString(),
    };
    return new Command({ update: { messages: [message], delegations: [entry] } });
  }
}

/** Characters of a result that the ledger keeps: enough to know what came of it when its message is gone. */
const BRIEF_IN_LEDGER = 300;

const EARLY = {
  token_capped: 'its token budget was used up',
  turn_capped: 'its turns were used up',
  loop_capped: 'it repeated itself',
} as const;

function textFor(outcome: SubagentOutcome): string {
  if (outcome.status !== 'completed') return `Error: ${outcome.error ?? `The sub-agent ended as ${outcome.status}.`}`;
  const result = withoutMiddle(outcome.result, LONGEST_RESULT);
  return outcome.stopReason === null
    ? result
    : `[Stopped early, because ${EARLY[outcome.stopReason]}. What it had so far:]\n${result}`;
}

/** What ends the run's attempt and leaves the sub-agent to the next one. */
const isFault = (error: unknown): boolean =>
  ReindeerError.is(error) && ['fenced', 'aborted', 'store_unavailable'].includes(error.code);
