import { type DeliveryReceipt, factKey, type NewFact, type Run } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineStatement, type Tx } from '../executor.ts';
import { appendFacts } from '../log/append.ts';
import { greatest } from '../sql.ts';

const touch = defineStatement((db, p: { threadId: string; now: number }, dialect) =>
  db
    .updateTable('threads')
    .set({ updated_at: greatest(dialect, sql<number>`updated_at`, sql<number>`${p.now}`) })
    .where('thread_id', '=', p.threadId),
);

/**
 * Appends the fact that reports a run's present status, in the transaction that wrote it, and moves its thread up in listings. The end
 * of a run has its delivery receipt before it, whoever writes it (RT-02, RT-03).
 */
export async function reportRun(tx: Tx, run: Run, now: number, receipt: DeliveryReceipt | null = null): Promise<void> {
  const { runId, threadId, status, attempt, acknowledged, error, stopReason } = run;
  const fact: NewFact = {
    key: acknowledged ? factKey.terminal(runId) : factKey.run(runId, attempt, status),
    body: {
      kind: 'run',
      status,
      attempt,
      terminal: acknowledged,
      ...(acknowledged && error !== null ? { error } : {}),
      ...(acknowledged && stopReason !== null ? { stopReason } : {}),
    },
  };
  const facts: NewFact[] =
    acknowledged && run.kind === 'run'
      ? [{ key: factKey.delivery(runId), body: { kind: 'delivery', receipt } }, fact]
      : [fact];
  await appendFacts(tx, { threadId, runId, facts, now });
  tx.send(touch, { threadId, now });
}
