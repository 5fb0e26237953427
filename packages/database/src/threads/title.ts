import type { CheckpointPut } from '@reindeer/protocol';
import { defineStatement, type Tx } from '../executor.ts';

const setTitle = defineStatement((db, p: { threadId: string; title: string | null }) =>
  db.updateTable('threads').set({ title: p.title }).where('thread_id', '=', p.threadId),
);

/** The title that a checkpoint of the root graph brings; undefined = it brings none. */
export function titleIn(input: Pick<CheckpointPut, 'ns' | 'channels'>): string | null | undefined {
  if (input.ns !== '') return undefined;
  const channel = input.channels.find(({ name }) => name === 'title');
  if (channel === undefined) return undefined;
  const value: unknown = JSON.parse(channel.value.json);
  return typeof value === 'string' || value === null ? value : undefined;
}

/** Lists show a thread's title without loading its state: the row follows the channel in the transaction that writes it. */
export function mirrorTitle(tx: Tx, input: CheckpointPut): void {
  const title = titleIn(input);
  if (title !== undefined) tx.send(setTitle, { threadId: input.threadId, title });
}
