import type { Fact, Json, JsonObject } from '@reindeer/protocol';

/** Steps told of one message. */
const STEPS = 32;

/** Usage of sub-agents by the call that started each, scoped by run: providers use the same call ids again. */
export type Delegated = ReadonlyMap<string, JsonObject>;

const keyOf = (runId: string | null, callId: string): string => JSON.stringify([runId, callId]);

/** What the sub-agents used whose results are among these facts; a result that comes again counts once. */
export function delegatedUsage(facts: readonly Fact[]): Delegated {
  const found = new Map<string, JsonObject>();
  for (const { body, runId } of facts) {
    if (body.kind !== 'message' || body.ns !== '') continue;
    const message = body.message as JsonObject;
    const usage = (message.additional_kwargs as JsonObject | undefined)?.subagent_token_usage;
    if (message.type === 'tool' && typeof message.tool_call_id === 'string' && isObject(usage))
      found.set(keyOf(runId, message.tool_call_id), usage);
  }
  return found;
}

/**
 * What a message of the model was for and what it cost (MW-20, version 1): worked out when it is read, so that nothing of it can
 * disagree with the message. The usage of the sub-agents that it started stands beside its own, once each. null = not the model's.
 */
export function attributionOf(message: JsonObject, runId: string | null, delegated: Delegated): JsonObject | null {
  if (message.type !== 'ai') return null;
  const calls = (Array.isArray(message.tool_calls) ? message.tool_calls : []).filter(isObject);
  const subagents = [...new Set(calls.map(({ id }) => String(id ?? '')))].flatMap((id) => {
    const usage = delegated.get(keyOf(runId, id));
    return usage === undefined || id === '' ? [] : [{ tool_call_id: id, usage }];
  });
  return {
    version: 1,
    kind: kindOf(message, calls),
    steps: calls.slice(0, STEPS).flatMap(stepsOf).slice(0, STEPS),
    usage: (message.usage_metadata as Json | undefined) ?? null,
    ...(subagents.length === 0 ? {} : { subagent_usage: subagents }),
  };
}

function kindOf(message: JsonObject, calls: readonly JsonObject[]): string {
  if (calls.length === 0) return message.content === '' ? 'thinking' : 'final_answer';
  if (calls.every(({ name }) => name === 'write_todos')) return 'todo_update';
  if (calls.every(({ name }) => name === 'task')) return 'subagent_dispatch';
  return 'tool_batch';
}

function stepsOf({ name, args }: JsonObject): JsonObject[] {
  const given = isObject(args) ? args : {};
  switch (name) {
    case 'write_todos':
      return (Array.isArray(given.todos) ? given.todos : [])
        .filter(isObject)
        .map(({ content, status }) => ({ kind: `todo_${todoStep(status)}`, label: textOf(content) }));
    case 'task':
      return [{ kind: 'subagent', label: textOf(given.description) }];
    case 'web_search':
    case 'image_search':
      return [{ kind: 'search', label: textOf(given.query) }];
    default:
      return [{ kind: 'tool', label: textOf(name) }];
  }
}

const todoStep = (status: Json | undefined): string =>
  status === 'completed' ? 'complete' : status === 'in_progress' ? 'start' : 'add';

const textOf = (value: Json | undefined): string => (typeof value === 'string' ? value.slice(0, 200) : '');

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
