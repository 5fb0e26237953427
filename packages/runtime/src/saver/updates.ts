import type { PendingWrite } from '@langchain/langgraph-checkpoint';
import { type Fence, factKey, type Json, type NewFact } from '@reindeer/protocol';
import type { Packer } from './packer.ts';

/** Channels that belong to LangGraph and not to the graph's state. */
export const isHidden = (channel: string): boolean => channel.startsWith('__') || channel.startsWith('branch:');

const PULL = /^~__pregel_pull, ([^,]+)$/;
const PUSH = /^~__pregel_push, (\d{10})(?:,|$)/;
/** LangGraph's id for writes that belong to no task (a resume value, a command's update). */
const NO_TASK = '00000000-0000-0000-0000-000000000000';

/**
 * Which node a task ran: as the attempt named it, else from the path of an ordinary task, else from the Send that asked for it.
 * Null when nothing tells.
 */
export function nodeOf(
  taskId: string,
  taskPath: string,
  taskName: (taskId: string) => string | undefined,
  sends: readonly unknown[],
): string | null {
  const named = taskName(taskId) ?? PULL.exec(taskPath)?.[1];
  if (named !== undefined) return named;
  const push = PUSH.exec(taskPath);
  const send = push === null ? undefined : (sends[Number(push[1])] as { node?: unknown } | undefined);
  return typeof send?.node === 'string' ? send.node : null;
}

/**
 * The facts of one task's writes: an `update` when it returned something, an `interrupt` when it stopped to ask. Failures and
 * resume values have none. Writes without a task (graph input, a command) have none either: they show as messages and values.
 */
export function factsOfWrites(input: {
  readonly fence: Fence;
  readonly ns: string;
  readonly checkpointId: string;
  readonly taskId: string;
  readonly taskPath: string;
  readonly node: string | null;
  readonly writes: readonly PendingWrite[];
  readonly packer: Packer;
}): NewFact[] {
  const { ns, checkpointId, taskId, taskPath, node, writes, packer } = input;
  if (writes.length === 0 || taskId === NO_TASK || taskPath === '') return [];
  const interrupts = writes.filter(([channel]) => channel === '__interrupt__').flatMap(([, value]) => value);
  if (interrupts.length > 0) {
    return [
      {
        // The same task can ask again after its answer, in another run: a run ends with its interrupt.
        key: factKey.interrupt(ns, checkpointId, `${taskId}:${input.fence.runId}`),
        body: { kind: 'interrupt', ns, interrupts: packer.wire(interrupts) },
      },
    ];
  }
  if (node === null || node.startsWith('__')) return [];
  if (
    writes.every(
      ([channel]) => channel === '__error__' || channel === '__error_source_node__' || channel === '__resume__',
    )
  ) {
    return [];
  }
  return [
    {
      key: factKey.update(checkpointId, taskId),
      body: { kind: 'update', ns, node, taskId, values: updateOf(writes, packer) },
    },
  ];
}

/** As LangGraph's `updates` mode: one object of channels, or a list of such objects when a channel was written twice. */
function updateOf(writes: readonly PendingWrite[], packer: Packer): Json {
  const visible = writes.filter(([channel]) => !isHidden(channel));
  const names = new Set(visible.map(([channel]) => channel));
  if (names.size < visible.length) return visible.map(([channel, value]) => ({ [channel]: packer.wire(value) }));
  const values: Record<string, Json> = {};
  for (const [channel, value] of visible) values[channel] = packer.wire(value);
  return values;
}
