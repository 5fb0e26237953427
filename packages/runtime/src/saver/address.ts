import type { RunnableConfig } from '@langchain/core/runnables';
import { getCheckpointId } from '@langchain/langgraph-checkpoint';
import { ReindeerError } from '@reindeer/protocol';

/** Which checkpoint a LangGraph config means. */
export interface Address {
  readonly threadId: string;
  readonly ns: string;
  /** null = the newest. */
  readonly checkpointId: string | null;
}

/** A text of a config, or null for anything else. */
export const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

/** @throws ReindeerError `bad_request` without a thread id */
export function addressOf(config: RunnableConfig): Address {
  const configurable = (config.configurable ?? {}) as Record<string, unknown>;
  const threadId = text(configurable.thread_id);
  if (threadId === null) throw missing('thread_id', 'a checkpointer');
  const ns = typeof configurable.checkpoint_ns === 'string' ? configurable.checkpoint_ns : '';
  return { threadId, ns, checkpointId: text(getCheckpointId(config)) };
}

export function configOf(threadId: string, ns: string, checkpointId: string): RunnableConfig {
  return { configurable: { thread_id: threadId, checkpoint_ns: ns, checkpoint_id: checkpointId } };
}

export function missing(key: string, who: string): ReindeerError {
  return new ReindeerError('bad_request', `"${key}" is missing: pass it as config.configurable.${key} to use ${who}.`, {
    detail: { field: `configurable.${key}` },
  });
}
