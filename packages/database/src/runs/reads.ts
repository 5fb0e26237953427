import type { Run, RunStatus } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement } from '../executor.ts';
import { typed } from '../sql.ts';
import { findRun, selectRuns, toRun } from './rows.ts';

const listRuns = defineStatement(
  (db, p: { threadId: string; userId: string; status: RunStatus | null; limit: number; offset: number }, dialect) =>
    selectRuns(db)
      .where('runs.thread_id', '=', p.threadId)
      .where('runs.user_id', '=', p.userId)
      .where('runs.kind', '=', 'run')
      .where(
        sql<boolean>`(${typed(dialect, p.status, 'text')} is null or ${p.status} = case runs.status when 'queued' then 'pending' else runs.status end)`,
      )
      .orderBy('runs.created_at', 'desc')
      .orderBy('runs.admission', 'desc')
      .limit(p.limit)
      .offset(p.offset),
);
const unacknowledged = defineStatement((db, p: { threadId: string }) =>
  selectRuns(db)
    .where('runs.thread_id', '=', p.threadId)
    .where('runs.acknowledged', '=', 0)
    .where('runs.status', '!=', 'queued')
    .orderBy('runs.admission'),
);

export const getRun = defineScript(
  'runs.get',
  'read',
  (tx, input: { readonly runId: string }): Promise<Run | null> => findRun(tx, input.runId),
  'alone',
);

export const list = defineScript(
  'runs.list',
  'read',
  async (
    tx,
    input: {
      readonly threadId: string;
      readonly userId: string;
      readonly status: RunStatus | null;
      readonly limit: number;
      readonly offset: number;
    },
  ): Promise<Run[]> => (await tx.all(listRuns, input)).map(toRun),
  'alone',
);

export const active = defineScript(
  'runs.active',
  'read',
  async (tx, input: { readonly threadId: string }): Promise<Run[]> => (await tx.all(unacknowledged, input)).map(toRun),
  'alone',
);
