import type { Fact, Json, JsonObject, Run, StateSnapshot, Thread } from '@reindeer/protocol';
import { redactSecrets } from './redact.ts';

/** How our rows look to a LangGraph client. Times are ISO 8601 in UTC. */

const iso = (milliseconds: number) => new Date(milliseconds).toISOString();

export { iso as isoTime };

export interface ThreadView {
  readonly thread_id: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly state_updated_at: string;
  readonly metadata: JsonObject;
  readonly status: string;
  readonly config: JsonObject;
  readonly values: JsonObject;
  readonly interrupts: JsonObject;
}

/** @param state the newest state; null in listings, where `values` holds the title only */
export function threadView(thread: Thread, state: StateSnapshot | null): ThreadView {
  return {
    thread_id: thread.threadId,
    created_at: iso(thread.createdAt),
    updated_at: iso(thread.updatedAt),
    state_updated_at: state?.createdAt ?? iso(thread.updatedAt),
    metadata: redactSecrets(thread.metadata),
    status: thread.status,
    config: {},
    values: {
      ...(thread.title === null ? {} : { title: thread.title }),
      ...(state === null ? {} : (stateView(state, ['values']).values as JsonObject)),
    },
    interrupts: state === null ? {} : interruptsOf(state),
  };
}

/** Interrupts by task id, as LangGraph's threads carry them. */
function interruptsOf(state: StateSnapshot): JsonObject {
  const result: Record<string, Json> = {};
  for (const task of state.tasks) {
    const interrupts = task.interrupts;
    if (typeof task.id === 'string' && Array.isArray(interrupts) && interrupts.length > 0)
      result[task.id] = interrupts as Json;
  }
  return result;
}

export function runView(run: Run): JsonObject {
  const { usage } = run;
  return {
    run_id: run.runId,
    thread_id: run.threadId,
    assistant_id: run.assistantId,
    status: run.status,
    metadata: redactSecrets(run.metadata),
    kwargs: redactSecrets({
      input: run.request.input,
      command: run.request.command,
      config: run.request.config,
      context: run.request.context,
      stream_mode: run.request.streamModes,
      stream_subgraphs: run.request.streamSubgraphs,
      checkpoint_id: run.request.checkpointId,
    }),
    multitask_strategy: run.multitaskStrategy,
    on_disconnect: run.onDisconnect,
    created_at: iso(run.createdAt),
    updated_at: iso(run.updatedAt),
    started_at: run.startedAt === null ? null : iso(run.startedAt),
    ended_at: run.endedAt === null ? null : iso(run.endedAt),
    attempt: run.attempt,
    acknowledged: run.acknowledged,
    error: run.error,
    stop_reason: run.stopReason,
    cancel_reason: run.cancelAction,
    total_input_tokens: usage.inputTokens,
    total_output_tokens: usage.outputTokens,
    total_tokens: usage.totalTokens,
    llm_call_count: usage.modelCalls,
    lead_agent_tokens: usage.by?.callers.lead_agent ?? 0,
    subagent_tokens: usage.by?.callers.subagent ?? 0,
    middleware_tokens: usage.by?.callers.middleware ?? 0,
    token_usage_by_model: (usage.by?.models ?? {}) as JsonObject,
  };
}

/** Keys that the engine keeps for itself; `__interrupt__` stays, the SDK reads it. */
const isInternalKey = (key: string) => key.startsWith('__') && key !== '__interrupt__';

/** @param select `values`, `next`, … or `values.<key>`; null = everything */
export function stateView(state: StateSnapshot, select: readonly string[] | null): JsonObject {
  const values: Record<string, Json | undefined> = {};
  for (const [key, value] of Object.entries(state.values))
    if (!isInternalKey(key)) values[key] = hideImages(key, value);
  const whole: JsonObject = {
    values,
    next: [...state.next],
    checkpoint: state.checkpoint,
    checkpoint_id: state.checkpoint.checkpoint_id,
    parent_checkpoint: state.parentCheckpoint,
    parent_checkpoint_id: state.parentCheckpoint?.checkpoint_id ?? null,
    metadata: redactSecrets(state.metadata),
    created_at: state.createdAt,
    tasks: [...state.tasks],
    interrupts: [...state.interrupts],
  };
  if (select === null || select.length === 0) return whole;
  const chosen: Record<string, Json | undefined> = {};
  const chosenValues: Record<string, Json | undefined> = {};
  for (const name of select) {
    if (name.startsWith('values.')) chosenValues[name.slice(7)] = values[name.slice(7)];
    else if (name in whole) chosen[name] = whole[name];
  }
  if (Object.keys(chosenValues).length > 0 && chosen.values === undefined) chosen.values = chosenValues;
  return chosen;
}

/** Hidden messages are for the model; their inline images would only weigh down every answer. */
function hideImages(key: string, value: Json | undefined): Json | undefined {
  if (key !== 'messages' || !Array.isArray(value)) return value;
  return value.map((message: Json) => (isHidden(message) ? withoutDataImages(message) : message));
}

function isHidden(message: Json): message is JsonObject {
  if (message === null || typeof message !== 'object' || Array.isArray(message)) return false;
  const extra = (message as JsonObject).additional_kwargs;
  return typeof extra === 'object' && extra !== null && (extra as JsonObject).hide_from_ui === true;
}

function withoutDataImages(message: JsonObject): JsonObject {
  if (!Array.isArray(message.content)) return message;
  return { ...message, content: message.content.filter((block: Json) => !/"data:image\//.test(JSON.stringify(block))) };
}

/** One message fact as a row of the message lists. */
export function messageView(fact: Fact): JsonObject | null {
  // What sub-agents say among themselves is no message of the conversation (SA-24); the log has it under their namespace.
  if (fact.body.kind !== 'message' || fact.body.ns !== '') return null;
  const message = fact.body.message as JsonObject;
  return {
    seq: fact.seq,
    thread_id: fact.threadId,
    run_id: fact.runId,
    event_type: messageEventType(message),
    category: 'message',
    content: isHidden(message) ? withoutDataImages(message) : message,
    metadata: {},
    feedback: null,
    created_at: iso(fact.at),
  };
}

export function messageEventType(message: JsonObject): 'llm.human.input' | 'llm.tool.result' | 'llm.ai.response' {
  switch (message.type) {
    case 'human':
      return 'llm.human.input';
    case 'tool':
      return 'llm.tool.result';
    default:
      return 'llm.ai.response';
  }
}

export function factView(fact: Fact): JsonObject {
  return {
    seq: fact.seq,
    thread_id: fact.threadId,
    run_id: fact.runId,
    event_type: fact.body.kind,
    category: 'fact',
    content: fact.body as unknown as Json,
    created_at: iso(fact.at),
  };
}
