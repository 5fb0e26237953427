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
 * What reports a run's present status. The end of a run has its delivery receipt before it, whoever writes it (RT-02, RT-03).
 */
export function factsOfRun(run: Run, receipt: DeliveryReceipt | null): NewFact[] {
  const { runId, status, attempt, acknowledged, error, stopReason } = run;
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
  return acknowledged && run.kind === 'run'
    ? [{ key: factKey.delivery(runId), body: { kind: 'delivery', receipt } }, fact]
    : [fact];
}

/** Appends them in the transaction that wrote the status, and moves the thread up in listings. */
export async function reportRun(tx: Tx, run: Run, now: number, receipt: DeliveryReceipt | null = null): Promise<void> {
  const { runId, threadId } = run;
  await appendFacts(tx, { threadId, runId, facts: factsOfRun(run, receipt), now });
  tx.send(touch, { threadId, now });
}
