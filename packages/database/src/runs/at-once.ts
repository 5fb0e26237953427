import { type Admission, type AdmissionResult, factKey, type LeaseHolder, type RenewOutcome } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement } from '../executor.ts';
import { keyBytes } from '../log/append.ts';
import { compactFact } from '../log/compact.ts';
import { admittedRun } from './admitted.ts';
import { toCancelAction } from './rows.ts';

type Params = Pick<
  Admission,
  | 'runId'
  | 'threadId'
  | 'userId'
  | 'assistantId'
  | 'multitaskStrategy'
  | 'onDisconnect'
  | 'crashPolicy'
  | 'idempotencyKey'
  | 'payloadHash'
  | 'owner'
  | 'token'
  | 'leaseExpiresAt'
  | 'now'
> & {
  createThread: number;
  request: string;
  metadata: string;
  hash: Uint8Array;
  fact: string;
};

/**
 * The admission of a run to a thread that nothing has: the row with its details and lease, the fact that reports it, the thread. No row
 * = something stands against it, and nothing was changed.
 *
 * It decides by what was there when it began, without a lock. What can come in between is another admission, and each one leaves a
 * fact: the thread's counter, which is locked when it is raised, is then not the next one. That divides by zero, and all of it is
 * undone; so does a thread of somebody else that was made in between. An admission that comes later meets the unique index of
 * active runs. What has the thread can otherwise only let go.
 */
const admitToFree = defineStatement((db, p: Params) => {
  const query = sql<{ head: number }>`
    with free as materialized (
      select 1 as one
      where not exists (select 1 from runs where thread_id = ${p.threadId} and acknowledged = 0)
        and not exists (select 1 from runs where user_id = ${p.userId} and idempotency_key = ${p.idempotencyKey})
        and ${p.userId} = coalesce(
          (select user_id from threads where thread_id = ${p.threadId}),
          case ${p.createThread}::bigint when 1 then ${p.userId}::text end
        )
    ), admitted as (
      insert into runs (run_id, thread_id, user_id, kind, status, owner, token, attempt, acknowledged, input_tokens,
        output_tokens, total_tokens, model_calls, created_at, updated_at, idempotency_key)
      select ${p.runId}, ${p.threadId}, ${p.userId}, 'run', 'pending', ${p.owner}, ${p.token}, 0, 0, 0,
        0, 0, 0, ${p.now}::bigint, ${p.now}::bigint, ${p.idempotencyKey}
      from free
      on conflict do nothing
      returning 1 as one
    ), details as (
      insert into run_details (run_id, assistant_id, multitask_strategy, on_disconnect, crash_policy, payload_hash,
        request, metadata)
      select ${p.runId}, ${p.assistantId}, ${p.multitaskStrategy}, ${p.onDisconnect}, ${p.crashPolicy}, ${p.payloadHash},
        ${p.request}, ${p.metadata}
      from admitted
    ), lease as (
      insert into run_leases (run_id, expires_at) select ${p.runId}, ${p.leaseExpiresAt}::bigint from admitted
    ), numbered as (
      insert into thread_keys (thread_id, head, pruned_through) select ${p.threadId}, 1, 0 from admitted
      on conflict (thread_id) do update set head = thread_keys.head + 1
      returning thread_key, head
    ), run_key as (
      insert into run_keys (run_id, thread_key) select ${p.runId}, thread_key from numbered
      on conflict do nothing
      returning run_key
    ), fact as (
      insert into facts (thread_key, seq, run_key, at, key_hash, is_message, body)
      select numbered.thread_key, numbered.head, run_key.run_key, ${p.now}::bigint, ${p.hash}::bytea, 0, ${p.fact}
      from numbered, run_key
      on conflict do nothing
      returning 1
    ), thread as (
      insert into threads (thread_id, user_id, metadata, pinned, title, created_at, updated_at)
      select ${p.threadId}, ${p.userId}, '{}', 0, null, ${p.now}::bigint, ${p.now}::bigint from numbered
      on conflict (thread_id) do update set updated_at = greatest(threads.updated_at, excluded.updated_at)
        where threads.user_id = excluded.user_id
      returning 1
    )
    select head, 1 / (
      (select count(*) from fact) * (select count(*) from thread)
      * case when head = 1 + coalesce((select head from thread_keys where thread_id = ${p.threadId}), 0) then 1 else 0 end
    ) as whole
    from numbered`;
  return { compile: () => query.compile(db) };
});

/** What the server says when the statement above finds less than it expects. */
export const UNEXPECTED = '22012';

/** As `runs.admit`, in one statement, on Postgres; null = the thread is not simply free, ask `runs.admit`. */
export const admitAtOnce = defineScript(
  'runs.admitAtOnce',
  'durable',
  async (tx, input: Admission): Promise<AdmissionResult | null> => {
    const { runId, threadId } = input;
    const request = JSON.stringify(input.request);
    const metadata = JSON.stringify(input.metadata);
    const row = await tx.first(admitToFree, {
      ...input,
      createThread: input.createThread ? 1 : 0,
      request,
      metadata,
      hash: keyBytes(factKey.run(runId, 0, 'pending')),
      fact: compactFact({ kind: 'run', status: 'pending', attempt: 0, terminal: false }),
    });
    if (row === undefined) return null;
    tx.appended(threadId, row.head);
    return { outcome: 'admitted', superseded: [], run: admittedRun(input) };
  },
  'alone',
);

/**
 * All leases of an instance, in one statement that waits for nobody: leases that others hold are left out. It reads `runs` as of its
 * beginning and locks no row there; a takeover in between shows in the lease, which it writes too, and which must not have changed since.
 */
const renewFree = defineStatement((db, p: { holders: string }) => {
  const query = sql<{
    run_id: string;
    token: string | null;
    status: string | null;
    cancel_action: string | null;
    expires_at: number | null;
  }>`
    with asked as materialized (
      select h.r, h.t, h.e, h.i from jsonb_to_recordset(${p.holders}::jsonb) as h(r text, t text, e bigint, i bigint)
    ), before as materialized (
      select run_id, expires_at from run_leases where run_id = any(array(select r from asked))
    ), free as materialized (
      select lease.run_id, asked.e
      from asked
      join runs on runs.run_id = asked.r and runs.token = asked.t and runs.acknowledged = 0
        and (runs.status <> 'interrupted' or asked.i = 1)
      join before on before.run_id = asked.r
      join run_leases as lease on lease.run_id = before.run_id and lease.expires_at = before.expires_at
      for no key update of lease skip locked
    ), renewed as (
      update run_leases set expires_at = greatest(run_leases.expires_at, free.e)
      from free where run_leases.run_id = free.run_id
      returning run_leases.run_id, run_leases.expires_at
    )
    select asked.r as run_id, runs.token, runs.status, runs.cancel_action, renewed.expires_at
    from asked
    left join runs on runs.run_id = asked.r and runs.acknowledged = 0
    left join renewed on renewed.run_id = asked.r`;
  return { compile: () => query.compile(db) };
});

/** As `runs.renew`, on Postgres. Leases that are held, changed meanwhile or missing are `busy`. */
export const renewAtOnce = defineScript(
  'runs.renewAtOnce',
  'write',
  async (tx, { holders }: { readonly holders: readonly LeaseHolder[] }): Promise<Map<string, RenewOutcome>> => {
    const asked = holders.map(({ runId, token, expiresAt, allowInterrupted }) => ({
      r: runId,
      t: token,
      e: expiresAt,
      i: allowInterrupted ? 1 : 0,
    }));
    const rows = await tx.all(renewFree, { holders: JSON.stringify(asked) });
    const found = new Map(rows.map((row) => [row.run_id, row]));
    return new Map(holders.map((holder) => [holder.runId, outcomeOf(holder, found.get(holder.runId))]));
  },
  'alone',
);

/** What a renewal means for its holder. `row`: the run, unless it is over, and its lease, if it was renewed. */
export function outcomeOf(
  { token, allowInterrupted }: LeaseHolder,
  row:
    | {
        readonly token: string | null;
        readonly status: string | null;
        readonly cancel_action: string | null;
        readonly expires_at: number | null;
      }
    | undefined,
): RenewOutcome {
  if (row === undefined || row.token !== token) return { outcome: 'lost' };
  if (row.expires_at !== null)
    return { outcome: 'renewed', expiresAt: row.expires_at, cancelAction: toCancelAction(row.cancel_action) };
  return row.status === 'interrupted' && !allowInterrupted ? { outcome: 'interrupted' } : { outcome: 'busy' };
}
