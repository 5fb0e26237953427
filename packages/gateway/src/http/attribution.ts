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
export function attributionOf(
  message: JsonObject,
  runId: string | null,
  delegated: Delegated,
  plan: Plan = null,
): JsonObject | null {
  if (message.type !== 'ai') return null;
  const calls = (Array.isArray(message.tool_calls) ? message.tool_calls : []).filter(isObject);
  const subagents = [...new Set(calls.map(({ id }) => String(id ?? '')))].flatMap((id) => {
    const usage = delegated.get(keyOf(runId, id));
    return usage === undefined || id === '' ? [] : [{ tool_call_id: id, usage }];
  });
  return {
    version: 1,
    kind: kindOf(message, calls),
    steps: stepsOf(calls.slice(0, STEPS), plan),
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

function stepsOf(calls: readonly JsonObject[], plan: Plan): JsonObject[] {
  let before = plan;
  const steps = calls.flatMap(({ name, args }): JsonObject[] => {
    const given = isObject(args) ? args : {};
    switch (name) {
      case 'write_todos': {
        const after = itemsOf(given);
        const changes = todoSteps(before, after);
        before = after;
        return changes;
      }
      case 'task':
        return [{ kind: 'subagent', label: textOf(given.description) }];
      case 'web_search':
      case 'image_search':
        return [{ kind: 'search', label: textOf(given.query) }];
      default:
        return [{ kind: 'tool', label: textOf(name) }];
    }
  });
  return steps.slice(0, STEPS);
}

/** What the list that replaces another changed. Without the one before, every item counts as its state says. */
function todoSteps(before: Plan, after: NonNullable<Plan>): JsonObject[] {
  const step = (kind: string, label: string): JsonObject => ({ kind: `todo_${kind}`, label: label.slice(0, 200) });
  const gone = [...(before ?? new Map<string, string>()).keys()].filter((content) => !after.has(content));
  return [
    ...[...after]
      .filter(([content, status]) => before?.get(content) !== status)
      .map(([content, status]) => step(TODO_STEPS[status] ?? 'add', content)),
    ...gone.map((content) => step('remove', content)),
  ];
}

const TODO_STEPS: Readonly<Record<string, string>> = { completed: 'complete', in_progress: 'start' };

/** The items of the plan with their state; null = not known. */
export type Plan = ReadonlyMap<string, string> | null;

const itemsOf = (args: JsonObject): NonNullable<Plan> =>
  new Map(
    (Array.isArray(args.todos) ? args.todos : [])
      .filter(isObject)
      .map(({ content, status }) => [typeof content === 'string' ? content : '', textOf(status)]),
  );

/** The plan behind a message, where it writes one. */
export function planAfter(message: JsonObject, plan: Plan): Plan {
  const calls = message.type === 'ai' && Array.isArray(message.tool_calls) ? message.tool_calls : [];
  const last = calls.filter(isObject).findLast(({ name }) => name === 'write_todos');
  return last === undefined ? plan : itemsOf(isObject(last.args) ? last.args : {});
}

const textOf = (value: Json | undefined): string => (typeof value === 'string' ? value.slice(0, 200) : '');

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
