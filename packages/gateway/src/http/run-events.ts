import type { Fact, FactBody, Json, JsonObject } from '@reindeer/protocol';
import { entryOf, NO_DELIVERY } from '@reindeer/protocol';
import { isoTime, messageEventType } from './views.ts';

/**
 * The published catalogue of run events (RE-10): projections of the log's facts, in one shape. `middleware:` is followed by what the
 * middleware says, cut to 32 characters; whoever reads ignores types that it does not know.
 */
export const EVENT_TYPES = {
  'run.start': 'run',
  'run.end': 'run',
  'run.error': 'run',
  'run.interrupt': 'run',
  'run.delivery': 'run',
  'llm.human.input': 'message',
  'llm.ai.response': 'message',
  'llm.tool.result': 'message',
  'llm.error': 'model',
  'message.removed': 'message',
  'tool.start': 'tool',
  'tool.end': 'tool',
  'subagent.start': 'subagent',
  'subagent.step': 'subagent',
  'subagent.end': 'subagent',
  workspace_changes: 'workspace',
  'context:memory': 'context',
  custom: 'custom',
} as const;
export type EventType = keyof typeof EVENT_TYPES;

const LONGEST_TYPE = 32;

/** What sub-agents report, and others with a type of their own, by the type of the custom event. */
const NAMED: Readonly<Record<string, EventType>> = {
  task_started: 'subagent.start',
  task_running: 'subagent.step',
  task_completed: 'subagent.end',
  task_failed: 'subagent.end',
  task_cancelled: 'subagent.end',
  task_timed_out: 'subagent.end',
  llm_error: 'llm.error',
  'context:memory': 'context:memory',
};

interface Projected {
  readonly type: string;
  readonly category: string;
  readonly content: Json;
}

const of = (type: EventType, content: Json): Projected => ({ type, category: EVENT_TYPES[type], content });

/** One fact as an event; null where it is only the engine's business. No arguments of tools, no secrets (OBS-4). */
export function eventView(fact: Fact): JsonObject | null {
  const projected = project(fact.body);
  if (projected === null) return null;
  return {
    thread_id: fact.threadId,
    run_id: fact.runId,
    seq: fact.seq,
    event_type: projected.type,
    category: projected.category,
    content: projected.content,
    metadata: metadataOf(fact.body),
    created_at: isoTime(fact.at),
  };
}

function project(body: FactBody): Projected | null {
  switch (body.kind) {
    case 'run': {
      const { status, attempt, terminal, error, stopReason } = body;
      if (!terminal) return status === 'running' ? of('run.start', { attempt }) : null;
      const failed = status === 'error' || status === 'timeout';
      return of(failed ? 'run.error' : 'run.end', {
        status,
        attempt,
        error: error ?? null,
        stop_reason: stopReason ?? null,
      });
    }
    case 'delivery':
      return of('run.delivery', (body.receipt ?? NO_DELIVERY) as unknown as Json);
    case 'message': {
      // What sub-agents say among themselves is told by their steps (SA-24).
      if (body.ns !== '') return null;
      const message = body.message as JsonObject;
      return of(messageEventType(message), message);
    }
    case 'message-removed':
      return body.ns === '' ? of('message.removed', { message_id: body.messageId }) : null;
    case 'tool-started':
      return of('tool.start', { tool_call_id: body.toolCallId, name: body.name, attempt: body.attempt });
    case 'tool-finished':
      return of('tool.end', { tool_call_id: body.toolCallId, name: body.name, outcome: body.outcome });
    case 'interrupt':
      return body.ns === '' ? of('run.interrupt', { interrupts: body.interrupts }) : null;
    case 'workspace-changes':
      return of('workspace_changes', { version: body.changes.version, summary: body.changes.summary });
    case 'custom':
      return customEvent(body.data);
    case 'workspace-before':
    case 'update':
    case 'checkpoint':
    case 'frame':
      return null;
  }
}

function customEvent(data: Json): Projected {
  const type = typeOf(data);
  if (type === null) return of('custom', data);
  const named = entryOf(NAMED, type);
  if (named !== undefined) return of(named, data);
  return { type: `middleware:${type}`.slice(0, LONGEST_TYPE), category: 'middleware', content: data };
}

function typeOf(data: Json): string | null {
  const type = (data as { readonly type?: unknown } | null)?.type;
  return typeof type === 'string' && type !== '' ? type : null;
}

/** The sub-agent that an event belongs to; null = none. */
export function taskOf(fact: Fact): string | null {
  if (fact.body.kind !== 'custom') return null;
  const id = (fact.body.data as { readonly task_id?: unknown } | null)?.task_id;
  return typeof id === 'string' ? id : null;
}

function metadataOf(body: FactBody): JsonObject {
  if (body.kind !== 'custom') return {};
  const id = (body.data as { readonly task_id?: unknown } | null)?.task_id;
  return typeof id === 'string' ? { task_id: id } : {};
}
