import type { Fence } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineStatement, lasting, type Tx } from './executor.ts';

/**
 * The one conditional update with which every transaction of a holder begins (D1). A takeover writes a new token on the same row,
 * so the two cannot both pass: with a stale token nothing matches, and the caller must write nothing (RL-08, RL-32).
 * It assigns the token to itself: that takes the row's lock, and SQLite leaves a page alone whose bytes do not change. Postgres
 * would write a new version of the row every time; there the lock of an update is taken without one, under the same condition.
 */
const fence = defineStatement((db, p: { runId: string; token: string }, dialect) =>
  dialect.name === 'sqlite'
    ? db
        .updateTable('runs')
        .set({ token: sql<string>`token` })
        .where('run_id', '=', p.runId)
        .where('token', '=', p.token)
        .where('acknowledged', '=', 0)
    : db
        .selectFrom('runs')
        .select('run_id')
        .where('run_id', '=', p.runId)
        .where('token', '=', p.token)
        .where('acknowledged', '=', 0)
        .forNoKeyUpdate(),
);
const fenceOfThread = lasting(
  defineStatement((db, p: { runId: string; token: string; threadId: string }, dialect) =>
    dialect.name === 'sqlite'
      ? db
          .updateTable('runs')
          .set({ token: sql<string>`token` })
          .where('run_id', '=', p.runId)
          .where('token', '=', p.token)
          .where('thread_id', '=', p.threadId)
          .where('acknowledged', '=', 0)
      : db
          .selectFrom('runs')
          .select('run_id')
          .where('run_id', '=', p.runId)
          .where('token', '=', p.token)
          .where('thread_id', '=', p.threadId)
          .where('acknowledged', '=', 0)
          .forNoKeyUpdate(),
  ),
);

/**
 * Does `held` still stand on its run, and is the run not over? False = write nothing and answer `fenced`.
 * With `threadId`, the run must also be one of that thread, which is what a write to a thread's rows needs.
 */
export async function fenceRun(tx: Tx, held: Fence, threadId?: string): Promise<boolean> {
  const changed =
    threadId === undefined
      ? await tx.run(fence, { runId: held.runId, token: held.token })
      : await tx.run(fenceOfThread, { runId: held.runId, token: held.token, threadId });
  return changed === 1;
}
