import type { CapturedMessage, ClaimedCapture, MemoryStore } from '@reindeer/protocol';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { typed } from '../sql.ts';
import { applyChange } from './document.ts';
import { conversationOf, merged } from './merge.ts';
import type { MemoryCapturesTable } from './tables.ts';

type Input<M extends keyof MemoryStore> = Parameters<MemoryStore[M]>[0];
type Output<M extends keyof MemoryStore> = Awaited<ReturnType<MemoryStore[M]>>;
interface Key {
  readonly userId: string;
  readonly agent: string;
  readonly threadId: string;
}

const find = defineStatement((db, p: Key, dialect) =>
  db
    .selectFrom('memory_captures')
    .selectAll()
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .where('thread_id', '=', p.threadId)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate()),
);
const make = defineStatement((db, p: Key & { now: number }) =>
  db
    .insertInto('memory_captures')
    .values({
      user_id: p.userId,
      agent: p.agent,
      thread_id: p.threadId,
      signals: '[]',
      version: 0,
      attempts: 0,
      updated_at: p.now,
    })
    .onConflict((c) => c.columns(['user_id', 'agent', 'thread_id']).doNothing()),
);
const waiting = defineStatement((db, _p: object) =>
  db
    .selectFrom('memory_captures')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('due_at', 'is not', null),
);
const waitingOf = defineStatement((db, p: { userId: string }) =>
  db
    .selectFrom('memory_captures')
    .select((eb) => eb.fn.countAll<number>().as('count'))
    .where('user_id', '=', p.userId)
    .where('due_at', 'is not', null),
);
const note = defineStatement(
  (
    db,
    p: Key & { pending: string | null; leaving: string | null; signals: string; dueAt: number; now: number },
    dialect,
  ) =>
    db
      .updateTable('memory_captures')
      .set((eb) => ({
        pending: typed(dialect, p.pending, 'text'),
        leaving: typed(dialect, p.leaving, 'text'),
        signals: p.signals,
        due_at: p.dueAt,
        version: eb('version', '+', 1),
        updated_at: p.now,
      }))
      .where('user_id', '=', p.userId)
      .where('agent', '=', p.agent)
      .where('thread_id', '=', p.threadId),
);
const due = defineStatement((db, p: { now: number; limit: number }, dialect) =>
  db
    .selectFrom('memory_captures')
    .select(['user_id', 'agent', 'thread_id'])
    .where('due_at', '<=', p.now)
    .where((eb) => eb.or([eb('lease_until', 'is', null), eb('lease_until', '<=', p.now)]))
    .orderBy('due_at')
    .limit(p.limit)
    .$if(dialect.name === 'postgres', (query) => query.forNoKeyUpdate().skipLocked()),
);
/** The condition stands in the write itself: of two that saw it free one gets it (D1). */
const take = defineStatement((db, p: Key & { token: string; leaseUntil: number; now: number }) =>
  db
    .updateTable('memory_captures')
    .set({ token: p.token, lease_until: p.leaseUntil })
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .where('thread_id', '=', p.threadId)
    .where('due_at', '<=', p.now)
    .where((eb) => eb.or([eb('lease_until', 'is', null), eb('lease_until', '<=', p.now)]))
    .returningAll(),
);
/** Opens the transaction of a holder. */
const hold = defineStatement((db, p: Key & { token: string; now: number }) =>
  db
    .updateTable('memory_captures')
    .set({ updated_at: p.now })
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .where('thread_id', '=', p.threadId)
    .where('token', '=', p.token),
);
const finish = defineStatement((db, p: Key & { version: number; watermark: string | null }, dialect) =>
  db
    .updateTable('memory_captures')
    .set({
      pending: null,
      leaving: null,
      signals: '[]',
      due_at: null,
      token: null,
      lease_until: null,
      attempts: 0,
      watermark: typed(dialect, p.watermark, 'text'),
    })
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .where('thread_id', '=', p.threadId)
    .where('version', '=', p.version),
);
/** Newer messages came meanwhile: they wait for their turn. */
const goOn = defineStatement((db, p: Key & { watermark: string | null }, dialect) =>
  db
    .updateTable('memory_captures')
    .set({ token: null, lease_until: null, attempts: 0, watermark: typed(dialect, p.watermark, 'text') })
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .where('thread_id', '=', p.threadId),
);
const giveBack = defineStatement((db, p: Key & { token: string; dueAt: number; failures: number }) =>
  db
    .updateTable('memory_captures')
    .set((eb) => ({
      token: null,
      lease_until: null,
      due_at: p.dueAt,
      attempts: eb('attempts', '+', p.failures),
    }))
    .where('user_id', '=', p.userId)
    .where('agent', '=', p.agent)
    .where('thread_id', '=', p.threadId)
    .where('token', '=', p.token),
);
/** What waits for nothing only keeps a watermark. */
const oldestKept = defineStatement((db, p: { keep: number }) =>
  db
    .selectFrom('memory_captures')
    .select('updated_at')
    .where('due_at', 'is', null)
    .orderBy('updated_at', 'desc')
    .limit(1)
    .offset(p.keep),
);
const removeOld = defineStatement((db, p: { until: number }) =>
  db.deleteFrom('memory_captures').where('due_at', 'is', null).where('updated_at', '<=', p.until),
);

const listOf = <T>(text: string | null): readonly T[] | null =>
  text === null ? null : (JSON.parse(text) as readonly T[]);
const textOf = (list: readonly unknown[] | null): string | null => (list === null ? null : JSON.stringify(list));
const pendingOf = (row: MemoryCapturesTable) => ({
  pending: listOf<CapturedMessage>(row.pending),
  leaving: listOf<CapturedMessage>(row.leaving),
  signals: listOf<string>(row.signals) ?? [],
  dueAt: row.due_at,
});
const keyOf = (row: Pick<MemoryCapturesTable, 'user_id' | 'agent' | 'thread_id'>): Key => ({
  userId: row.user_id,
  agent: row.agent,
  threadId: row.thread_id,
});

async function enqueue(tx: Tx, input: Input<'enqueue'>): Promise<Output<'enqueue'>> {
  const { userId, agent, threadId, now, signals } = input;
  const key = { userId, agent, threadId };
  let row = await tx.first(find, key);
  if (row === undefined || row.due_at === null) {
    // Processes that ask at once may pass the bound by one each.
    const { count = 0 } = (await tx.first(waiting, {})) ?? {};
    if (Number(count) >= input.maxPending * (signals.length > 0 ? 2 : 1)) return 'dropped';
  }
  if (row === undefined) {
    await tx.run(make, { ...key, now });
    row = await tx.first(find, key);
  }
  const next = merged(row === undefined ? null : pendingOf(row), input);
  await tx.run(note, {
    ...key,
    pending: textOf(next.pending),
    leaving: textOf(next.leaving),
    signals: JSON.stringify(next.signals),
    dueAt: next.dueAt,
    now,
  });
  return 'queued';
}

async function claim(tx: Tx, { tokens, leaseUntil, now }: Input<'claim'>): Promise<Output<'claim'>> {
  const claimed: ClaimedCapture[] = [];
  const free = await tx.all(due, { now, limit: tokens.length });
  for (const [index, candidate] of free.entries()) {
    const token = tokens[index];
    if (token === undefined) break;
    const row = await tx.first(take, { ...keyOf(candidate), token, leaseUntil, now });
    if (row === undefined) continue;
    const { signals, ...rest } = pendingOf(row);
    claimed.push({
      ...keyOf(row),
      ...conversationOf(rest),
      token,
      version: row.version,
      signals,
      watermark: row.watermark,
      attempts: row.attempts,
    });
  }
  return claimed;
}

async function settle(tx: Tx, input: Input<'settle'>): Promise<Output<'settle'>> {
  const { right, change, watermark, maxWatermarks, now } = input;
  const { userId, agent, threadId, token, version } = right;
  const key = { userId, agent, threadId };
  if ((await tx.run(hold, { ...key, token, now })) === 0) return { outcome: 'fenced' };
  const changed = change === null ? null : await applyChange(tx, { userId, agent, change, now });
  // The right stays: what was learned is worked out anew.
  if (changed !== null && changed.outcome !== 'ok') return changed;
  if ((await tx.run(finish, { ...key, version, watermark })) === 0) await tx.run(goOn, { ...key, watermark });
  const old = await tx.first(oldestKept, { keep: maxWatermarks });
  if (old !== undefined) await tx.run(removeOld, { until: old.updated_at });
  return changed ?? { outcome: 'ok', revision: 0 };
}

export const captureScripts = {
  'memory.enqueue': defineScript('memory.enqueue', 'write', enqueue),
  'memory.claim': defineScript('memory.claim', 'write', claim),
  'memory.settle': defineScript('memory.settle', 'durable', settle),
  'memory.postpone': defineScript('memory.postpone', 'write', async (tx, input: Input<'postpone'>): Promise<void> => {
    const { right, dueAt, failed } = input;
    const { userId, agent, threadId, token } = right;
    await tx.run(giveBack, { userId, agent, threadId, token, dueAt, failures: failed ? 1 : 0 });
  }),
  'memory.pending': defineScript(
    'memory.pending',
    'read',
    async (tx, { userId }: Input<'pending'>): Promise<number> => {
      const row = userId === null ? await tx.first(waiting, {}) : await tx.first(waitingOf, { userId });
      return Number(row?.count ?? 0);
    },
  ),
};
