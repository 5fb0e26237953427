import type { BaseMessage } from '@langchain/core/messages';
import {
  type BatchExecutor,
  type BatchUsage,
  EMPTY_REQUEST,
  type ItemResult,
  type ItemWork,
  itemThread,
  itemUser,
  type JsonObject,
  NO_BATCH_USAGE,
  type PreparedItem,
  ReindeerError,
  type Run,
  type RunService,
  type Surroundings,
  type ThreadService,
} from '@reindeer/protocol';
import { PINNED, toMessage } from '../loop/messages.ts';
import { outcomeOf } from '../subagents/outcome.ts';
import type { SubagentType } from '../subagents/settings.ts';
import type { Subagents } from '../subagents/subagents.ts';
import { type AskForItem, judge } from './acceptance.ts';
import { ITEM_AGENT, ITEM_OPTIONS, type ItemOptions } from './names.ts';
import { checkAnswer, schemaRequest } from './result-schema.ts';

export interface ItemExecutorParts {
  readonly runs: Pick<RunService, 'create' | 'join' | 'cancel' | 'list'>;
  readonly threads: Pick<ThreadService, 'state' | 'delete'>;
  readonly subagents: Subagents;
  /** Can commands run on this machine? */
  readonly canExecute: boolean;
  readonly surroundings: Surroundings;
  /** Judges results that are to be judged; absent = nobody does. */
  readonly ask?: AskForItem;
}

/** Steps of the graph per turn, at most: the model, a review, the tools. A bound behind the one on turns. */
const STEPS_PER_TURN = 3;
const STEPS_BEYOND = 20;
/** Runs of the attempts of one item, at most: each has two. */
const MOST_RUNS = 50;
/** Between two tries to end a run that a store could not stop. */
const STOP_PAUSE_MS = 1_000;

/**
 * Runs items as runs of their own, each on a thread of its own. That a thread has one active run is what the database itself
 * guarantees: so no two attempts of an item are alive at once, whatever became of the process of the first. An attempt that follows a crash goes on
 * at the checkpoint of the one before; one that follows a failure begins anew.
 */
export function createItemExecutor(parts: ItemExecutorParts): BatchExecutor {
  const types = parts.subagents.types(parts.canExecute);
  return {
    prepare: async (work) => {
      const type = types.get(work.batch.subagentType);
      if (type === undefined)
        throw new ReindeerError(
          'validation_failed',
          `There is no sub-agent "${work.batch.subagentType.slice(0, 80)}" on this instance.`,
        );
      return new ItemRun(parts, work, type).prepare();
    },
  };
}

class ItemRun {
  readonly #parts: ItemExecutorParts;
  readonly #work: ItemWork;
  readonly #place: { readonly threadId: string; readonly userId: string };
  readonly #type: SubagentType;
  readonly #timeout = new AbortController();
  #usage: BatchUsage = NO_BATCH_USAGE;
  #model: string | null = null;
  #turn = 0;
  #skills = '';

  constructor(parts: ItemExecutorParts, work: ItemWork, type: SubagentType) {
    const { batch, item } = work;
    this.#parts = parts;
    this.#work = work;
    this.#type = type;
    this.#place = { threadId: itemThread(batch.batchId, item.position), userId: itemUser(batch.batchId) };
  }

  async prepare(): Promise<PreparedItem> {
    const { signal, item, batch } = this.#work;
    signal.throwIfAborted();
    // Skills that cannot be loaded fail the attempt before anything of a sub-agent is made (SA-12).
    const { userId, threadId } = batch;
    const ofAgent = namesOf(batch.spec.skills);
    this.#skills = await this.#parts.subagents.skillsFor(this.#type, { userId, threadId, signal }, ofAgent);
    const earlier = item.lease.epoch > 1 ? await this.#earlier() : 'none';
    signal.throwIfAborted();
    const { ask } = this.#parts;
    const { acceptance } = item;
    return {
      run: () => (typeof earlier === 'object' ? Promise.resolve(earlier) : this.#run(earlier === 'unfinished')),
      ...(ask === undefined || acceptance === null
        ? {}
        : {
            check: (result: string) => {
              const model = textOf(batch.spec.model_name);
              const by = { userId, context: contextOf(batch.spec) };
              return judge(ask, { task: item.prompt, acceptance, result, model, by, signal });
            },
          }),
      forget: () => this.#forget(),
    };
  }

  /** What the attempt before left: nothing, an answer, or work to go on with. */
  async #earlier(): Promise<'none' | 'unfinished' | ItemResult> {
    const { runs, threads } = this.#parts;
    const listed = { ...this.#place, status: null, limit: MOST_RUNS, offset: 0 };
    let known = await runs.list(listed);
    const active = known.find((run) => !run.acknowledged);
    if (active !== undefined) {
      // Its holder may be stopped or cut off: it hears of this, or its own lease runs out.
      const { runId } = active;
      const answer = await runs.cancel({
        ...this.#place,
        runId,
        action: 'interrupt',
        wait: true,
        signal: this.#work.signal,
      });
      if (answer.outcome === 'accepted' && !answer.stopped)
        throw new ReindeerError('conflict', 'The attempt before has not ended yet.', { retryable: true });
      known = await runs.list(listed);
    }
    if (known.length === 0) return 'none';
    // Whatever was stored of an attempt went with its thread: what these used was counted nowhere.
    for (const run of known) this.#count(run);
    const state = await threads.state({ ...this.#place, checkpointId: null, subgraphs: false });
    if (state === null || messagesOf(state.values).length === 0) return 'none';
    if (state.tasks.length > 0 || state.next.length > 0) return 'unfinished';
    this.#model = modelOf(messagesOf(state.values));
    const answer = await this.#checked(outcomeOf(messagesOf(state.values), null, null), false);
    if (answer.outcome === 'succeeded') return answer;
    await this.#forget();
    return 'none';
  }

  async #run(resumes: boolean): Promise<ItemResult> {
    const { clock } = this.#parts.surroundings;
    const timer = new AbortController();
    clock.sleep(this.#type.timeoutMs, timer.signal).then(
      () => this.#timeout.abort(),
      () => undefined,
    );
    try {
      const first = await this.#turnOf(resumes ? null : this.#prompt(), this.#skills);
      if (first.outcome !== 'ended') return first.result;
      return await this.#checked(first.ending, true);
    } finally {
      timer.abort();
    }
  }

  #prompt(): string {
    const { item, batch } = this.#work;
    const schema = schemaOf(batch.spec);
    const lines = [item.prompt, `(Item "${item.key}" of the batch "${batch.title}".)`];
    if (schema !== null) lines.push(schemaRequest(schema));
    return lines.join('\n\n');
  }

  /** An answer under the batch's schema; one that does not fit gets one turn to be put right. */
  async #checked(ending: ReturnType<typeof outcomeOf>, repair: boolean): Promise<ItemResult> {
    const ended = { stopReason: ending.stopReason, modelName: this.#model, usage: this.#usage };
    if (ending.status !== 'completed')
      return { outcome: 'failed', error: ending.error ?? 'The sub-agent failed.', ...ended };
    const schema = schemaOf(this.#work.batch.spec);
    if (schema === null) return { outcome: 'succeeded', result: ending.result, ...ended };
    const checked = checkAnswer(ending.result, schema);
    if (checked.outcome === 'valid') return { outcome: 'succeeded', result: checked.json, ...ended };
    const problem = `The answer does not fit the schema: ${checked.problem}`;
    if (!repair) return { outcome: 'failed', error: problem, ...ended };
    const second = await this.#turnOf(`${problem}.\nAnswer again with the corrected JSON value alone.`);
    return second.outcome === 'ended' ? this.#checked(second.ending, false) : second.result;
  }

  /** One run to its end. `prompt` null = goes on where the attempt before stopped; `before` is what the harness says ahead of it. */
  async #turnOf(
    prompt: string | null,
    before = '',
  ): Promise<
    | { readonly outcome: 'ended'; readonly ending: ReturnType<typeof outcomeOf> }
    | { readonly outcome: 'other'; readonly result: ItemResult }
  > {
    const { runs, threads } = this.#parts;
    const { batch, item, signal } = this.#work;
    this.#turn += 1;
    const stop = AbortSignal.any([signal, this.#timeout.signal]);
    const options: ItemOptions = {
      batch_id: batch.batchId,
      item_key: item.key,
      subagent_type: batch.subagentType,
      user_id: batch.userId,
      thread_id: batch.threadId,
      model_name: textOf(batch.spec.model_name),
    };
    let run: Run;
    try {
      const admitted = await runs.create({
        ...this.#place,
        assistantId: ITEM_AGENT,
        request: {
          ...EMPTY_REQUEST,
          input: prompt === null ? null : { messages: [...prefaceOf(before), { type: 'human', content: prompt }] },
          config: { recursion_limit: this.#type.maxTurns * STEPS_PER_TURN + STEPS_BEYOND },
          context: {
            ...contextOf(batch.spec),
            subagent_enabled: false,
            is_subagent: true,
            non_interactive: true,
            [ITEM_OPTIONS]: options as unknown as JsonObject,
          },
          streamModes: ['updates'],
        },
        metadata: { source: 'batch', batch_id: batch.batchId, item_key: item.key },
        multitaskStrategy: 'reject',
        onDisconnect: 'continue',
        // The item's lease decides who goes on, not the run's.
        crashPolicy: 'error',
        createThread: true,
        idempotencyKey: `item:${item.lease.itemId}:${item.lease.epoch}:${this.#turn}`,
      });
      if (admitted.outcome !== 'admitted' && admitted.outcome !== 'reused')
        return notAdmitted('The attempt before has not ended yet.');
      ({ run } = admitted);
    } catch (error) {
      if (ReindeerError.is(error) && ['over_capacity', 'shutting_down'].includes(error.code))
        return notAdmitted(error.message);
      throw error;
    }
    const ended = await this.#toItsEnd(run, stop);
    this.#count(ended);
    const failed = (error: string) => ({
      outcome: 'other' as const,
      result: {
        outcome: 'failed' as const,
        error,
        stopReason: ended.stopReason,
        modelName: this.#model,
        usage: this.#usage,
      },
    });
    if (this.#timeout.signal.aborted && ended.status !== 'success')
      return failed(`The sub-agent was ended after ${Math.round(this.#type.timeoutMs / 1_000)} s.`);
    if (ended.status !== 'success') return failed(ended.error ?? `The sub-agent ended as ${ended.status}.`);
    const state = await threads.state({ ...this.#place, checkpointId: null, subgraphs: false });
    const messages = state === null ? [] : messagesOf(state.values);
    this.#model = modelOf(messages) ?? this.#model;
    return { outcome: 'ended', ending: outcomeOf(messages, null, ended.stopReason) };
  }

  #count({ usage: { inputTokens, outputTokens } }: Run): void {
    this.#usage = {
      inputTokens: this.#usage.inputTokens + inputTokens,
      outputTokens: this.#usage.outputTokens + outputTokens,
    };
  }

  /** Waits until nothing of the run acts any more. After `stop` it is cancelled, again and again until it has ended. */
  async #toItsEnd(run: Run, stop: AbortSignal): Promise<Run> {
    const { runs, surroundings } = this.#parts;
    const { runId } = run;
    try {
      const ended = await runs.join({ ...this.#place, runId, signal: stop });
      if (ended !== null) return ended;
    } catch (error) {
      if (!stop.aborted)
        surroundings.logger.warn('A batch item cannot be followed; it is stopped', { runId, error: String(error) });
    }
    for (;;) {
      try {
        const answer = await runs.cancel({ ...this.#place, runId, action: 'interrupt', wait: true });
        if (answer.outcome === 'terminal') return answer.run;
        if (answer.outcome === 'not_found') return { ...run, status: 'interrupted' };
        if (answer.stopped) return (await runs.join({ ...this.#place, runId })) ?? answer.run;
      } catch (error) {
        surroundings.logger.warn('A batch item could not be stopped; it is tried again', {
          runId,
          error: String(error),
        });
      }
      await surroundings.clock.sleep(STOP_PAUSE_MS);
    }
  }

  /** Its thread goes: what came of it stands in the batch. Not when the item was begun again meanwhile: then it is the later attempt's. */
  async #forget(): Promise<void> {
    try {
      const { itemId, epoch } = this.#work.item.lease;
      await this.#parts.threads.delete({ ...this.#place, item: { itemId, epoch } });
    } catch (error) {
      this.#parts.surroundings.logger.warn('The thread of a batch item could not be deleted', {
        threadId: this.#place.threadId,
        error: String(error),
      });
    }
  }
}

const notAdmitted = (error: string) => ({
  outcome: 'other' as const,
  result: { outcome: 'not_admitted' as const, error },
});

const textOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

const objectOf = (value: unknown): JsonObject | null =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;

/** The skills of the agent that asked for the batch; null = all there are. */
const namesOf = (value: unknown): readonly string[] | null =>
  Array.isArray(value) ? value.filter((name) => typeof name === 'string') : null;

const schemaOf = (spec: JsonObject): JsonObject | null => objectOf(spec.result_schema);
const contextOf = (spec: JsonObject): JsonObject => objectOf(spec.run_context) ?? {};

function messagesOf(values: JsonObject): BaseMessage[] {
  const { messages } = values;
  if (!Array.isArray(messages)) return [];
  return messages.flatMap((message) => toMessage(message) ?? []);
}

function modelOf(messages: readonly BaseMessage[]): string | null {
  for (const message of messages.toReversed()) {
    const { model_name: name, model } = message.response_metadata as { model_name?: unknown; model?: unknown };
    const found = textOf(name) ?? textOf(model);
    if (found !== null) return found;
  }
  return null;
}

/** Not a part of the task: that would be taken for somebody's words. */
const prefaceOf = (text: string): JsonObject[] =>
  text === '' ? [] : [{ type: 'human', content: text, additional_kwargs: { hide_from_ui: true, [PINNED]: true } }];
