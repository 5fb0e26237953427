import type {
  ChannelEntry,
  ChannelFence,
  ChannelMessage,
  ChannelMessageState,
  ChannelReply,
  ChannelStore,
  ChannelWork,
} from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { typed } from '../sql.ts';

type Input<M extends keyof ChannelStore> = Parameters<ChannelStore[M]>[0];
type Output<M extends keyof ChannelStore> = Awaited<ReturnType<ChannelStore[M]>>;

const OPEN = ['received', 'running', 'answering'] as const;
const OVER = ['done', 'failed'] as const;

const take = defineStatement(
  (db, p: { channel: string; owner: string; token: string; expiresAt: number; overSince: number }) =>
    db
      .insertInto('channel_leases')
      .values({ channel: p.channel, owner: p.owner, token: p.token, expires_at: p.expiresAt })
      .onConflict((c) =>
        c
          .column('channel')
          .doUpdateSet({ owner: p.owner, token: p.token, expires_at: p.expiresAt })
          .where((eb) =>
            eb.or([
              eb('channel_leases.expires_at', '<=', p.overSince),
              // An owner's name belongs to one living process: what it left behind is its own.
              eb('channel_leases.owner', '=', p.owner),
            ]),
          ),
      ),
);
const leaseOf = defineStatement((db, p: { channel: string }) =>
  db.selectFrom('channel_leases').select('expires_at').where('channel', '=', p.channel),
);
const extend = defineStatement((db, p: ChannelFence & { expiresAt: number }) =>
  db
    .updateTable('channel_leases')
    .set({ expires_at: p.expiresAt })
    .where('channel', '=', p.channel)
    .where('token', '=', p.token),
);
const end = defineStatement((db, p: ChannelFence) =>
  db.deleteFrom('channel_leases').where('channel', '=', p.channel).where('token', '=', p.token),
);
const fence = defineStatement((db, p: ChannelFence) =>
  db
    .updateTable('channel_leases')
    .set({ token: sql<string>`token` })
    .where('channel', '=', p.channel)
    .where('token', '=', p.token),
);

/** Opens each transaction of a holder: false = the channel is somebody else's by now, write nothing. */
export const holdsChannel = async (tx: Tx, { channel, token }: ChannelFence): Promise<boolean> =>
  (await tx.run(fence, { channel, token })) === 1;

const acquire = defineScript(
  'channels.acquire',
  'durable',
  async (tx, input: Input<'acquire'>): Promise<Output<'acquire'>> => {
    const { channel, owner, token, leaseMs, graceMs, now } = input;
    if ((await tx.run(take, { channel, owner, token, expiresAt: now + leaseMs, overSince: now - graceMs })) === 1)
      return { outcome: 'held' };
    const other = await tx.first(leaseOf, { channel });
    return { outcome: 'busy', until: (other?.expires_at ?? now) + graceMs };
  },
);
const renew = defineScript(
  'channels.renew',
  'write',
  async (tx, input: Input<'renew'>): Promise<boolean> =>
    (await tx.run(extend, { ...input.fence, expiresAt: input.now + input.leaseMs })) === 1,
);
const release = defineScript('channels.release', 'write', async (tx, input: ChannelFence): Promise<void> => {
  await tx.run(end, input);
});

const waiting = defineStatement((db, p: { channel: string }) =>
  db
    .selectFrom('channel_messages')
    .select(sql<number>`cast(count(*) as integer)`.as('waiting'))
    .where('channel', '=', p.channel)
    .where('state', 'in', OPEN),
);
/** Known ones stay as they are; one that failed is new again, with the next number, so that its run is another one. */
const insert = defineStatement((db, p: { channel: string; messageId: string; message: string; now: number }) =>
  db
    .insertInto('channel_messages')
    .values({
      channel: p.channel,
      message_id: p.messageId,
      round: 1,
      state: 'received',
      message: p.message,
      user_id: null,
      work: null,
      shown_id: null,
      reply: null,
      tries: 0,
      due_at: p.now,
      received_at: p.now,
      updated_at: p.now,
    })
    .onConflict((c) =>
      c
        .columns(['channel', 'message_id'])
        .doUpdateSet((eb) => ({
          round: sql<number>`channel_messages.round + 1`,
          state: 'received',
          message: eb.ref('excluded.message'),
          user_id: null,
          work: null,
          shown_id: null,
          reply: null,
          tries: 0,
          due_at: eb.ref('excluded.due_at'),
          received_at: eb.ref('excluded.received_at'),
          updated_at: eb.ref('excluded.updated_at'),
        }))
        .where('channel_messages.state', '=', 'failed'),
    ),
);

const receive = defineScript(
  'channels.receive',
  'durable',
  async (tx, input: Input<'receive'>): Promise<Output<'receive'>> => {
    const { messages, limit, now } = input;
    const { channel } = input.fence;
    if (!(await holdsChannel(tx, input.fence))) return { outcome: 'fenced' };
    const before = (await tx.first(waiting, { channel }))?.waiting ?? 0;
    if (before + messages.length > limit) return { outcome: 'full' };
    let fresh = 0;
    for (const message of messages)
      fresh += await tx.run(insert, {
        channel,
        messageId: message.messageId,
        message: JSON.stringify(message),
        now,
      });
    return { outcome: 'taken', fresh };
  },
);

const isDue = defineStatement((db, p: { channel: string; now: number; limit: number }) =>
  db
    .selectFrom('channel_messages')
    .selectAll()
    .where('channel', '=', p.channel)
    .where('state', 'in', OPEN)
    .where('due_at', '<=', p.now)
    .orderBy('message_key')
    .limit(p.limit),
);
const due = defineScript('channels.due', 'read', async (tx, input: Input<'due'>): Promise<ChannelEntry[]> => {
  const rows = await tx.all(isDue, input);
  return rows.map((row) => ({
    key: row.message_key,
    channel: row.channel,
    round: row.round,
    state: row.state as ChannelMessageState,
    message: JSON.parse(row.message) as ChannelMessage,
    userId: row.user_id,
    work: row.work === null ? null : (JSON.parse(row.work) as ChannelWork),
    shownId: row.shown_id,
    reply: row.reply === null ? null : (JSON.parse(row.reply) as ChannelReply),
    tries: row.tries,
    dueAt: row.due_at,
    receivedAt: row.received_at,
  }));
});

interface Step {
  readonly channel: string;
  readonly key: number;
  readonly state: string;
  readonly userId: string | null;
  readonly work: string | null;
  readonly shownId: string | null;
  readonly reply: string | null;
  readonly tries: number;
  readonly dueAt: number;
  readonly now: number;
}
const step = defineStatement((db, p: Step, dialect) =>
  db
    .updateTable('channel_messages')
    .set({
      state: p.state,
      user_id: typed(dialect, p.userId, 'text'),
      work: typed(dialect, p.work, 'text'),
      shown_id: typed(dialect, p.shownId, 'text'),
      reply: typed(dialect, p.reply, 'text'),
      tries: p.tries,
      due_at: p.dueAt,
      updated_at: p.now,
    })
    .where('message_key', '=', p.key)
    .where('channel', '=', p.channel)
    .where('state', 'in', OPEN),
);
/** What was said is kept by the thread alone; the id stays, so that a second delivery is known. */
const close = defineStatement((db, p: { channel: string; key: number; state: string; now: number }) =>
  db
    .updateTable('channel_messages')
    .set({
      state: p.state,
      message: '',
      user_id: null,
      work: null,
      shown_id: null,
      reply: null,
      updated_at: p.now,
    })
    .where('message_key', '=', p.key)
    .where('channel', '=', p.channel)
    .where('state', 'in', OPEN),
);
const progress = defineScript(
  'channels.progress',
  'durable',
  async (tx, input: Input<'progress'>): Promise<boolean> => {
    const { key, now } = input;
    const { state, userId, work, shownId, reply, tries, dueAt } = input.progress;
    const { channel } = input.fence;
    if (!(await holdsChannel(tx, input.fence))) return false;
    if (state === 'done' || state === 'failed') await tx.run(close, { channel, key, state, now });
    else
      await tx.run(step, {
        channel,
        key,
        state,
        userId,
        work: work === null ? null : JSON.stringify(work),
        shownId,
        reply: reply === null ? null : JSON.stringify(reply),
        tries,
        dueAt,
        now,
      });
    return true;
  },
);

const old = defineStatement((db, p: { channel: string; before: number }) =>
  db
    .deleteFrom('channel_messages')
    .where('channel', '=', p.channel)
    .where('state', 'in', OVER)
    .where('updated_at', '<', p.before),
);
const forget = defineScript('channels.forget', 'write', async (tx, input: Input<'forget'>): Promise<void> => {
  await tx.run(old, input);
});

export const channelMessageScripts = {
  'channels.acquire': acquire,
  'channels.renew': renew,
  'channels.release': release,
  'channels.receive': receive,
  'channels.due': due,
  'channels.progress': progress,
  'channels.forget': forget,
};
