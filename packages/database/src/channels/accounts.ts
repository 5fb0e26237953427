import type { ChannelConnection, ChannelConversation, ChannelStore } from '@reindeer/protocol';
import { defineScript, defineStatement } from '../executor.ts';
import { holdsChannel } from './messages.ts';

type Input<M extends keyof ChannelStore> = Parameters<ChannelStore[M]>[0];
type Output<M extends keyof ChannelStore> = Awaited<ReturnType<ChannelStore[M]>>;

const MOST = 100;

const overCodes = defineStatement((db, p: { provider: string; userId: string; now: number }) =>
  db
    .deleteFrom('channel_codes')
    .where('provider', '=', p.provider)
    .where('user_id', '=', p.userId)
    .where('expires_at', '<=', p.now),
);
const fill = defineStatement(
  (db, p: { provider: string; userId: string; slot: number; codeHash: string; expiresAt: number }) =>
    db
      .insertInto('channel_codes')
      .values({
        provider: p.provider,
        user_id: p.userId,
        slot: p.slot,
        code_hash: p.codeHash,
        expires_at: p.expiresAt,
      })
      .onConflict((c) => c.columns(['provider', 'user_id', 'slot']).doNothing()),
);
const issueCode = defineScript(
  'channels.issueCode',
  'write',
  async (tx, input: Input<'issueCode'>): Promise<'issued' | 'full'> => {
    const { provider, userId, codeHash, expiresAt, limit, now } = input;
    await tx.run(overCodes, { provider, userId, now });
    for (let slot = 1; slot <= limit; slot += 1)
      if ((await tx.run(fill, { provider, userId, slot, codeHash, expiresAt })) === 1) return 'issued';
    return 'full';
  },
);

/** Used up by the statement that finds it: of two that send it one is answered. */
const use = defineStatement((db, p: { provider: string; codeHash: string; now: number }) =>
  db
    .deleteFrom('channel_codes')
    .where('code_hash', '=', p.codeHash)
    .where('provider', '=', p.provider)
    .where('expires_at', '>', p.now)
    .returning('user_id'),
);
const connect = defineStatement((db, p: ChannelConnection) =>
  db
    .insertInto('channel_connections')
    .values({
      provider: p.provider,
      workspace_id: p.workspaceId,
      external_id: p.externalId,
      connection_id: p.connectionId,
      external_name: p.externalName,
      user_id: p.userId,
      created_at: p.createdAt,
    })
    .onConflict((c) =>
      c.columns(['provider', 'workspace_id', 'external_id']).doUpdateSet((eb) => ({
        connection_id: eb.ref('excluded.connection_id'),
        external_name: eb.ref('excluded.external_name'),
        user_id: eb.ref('excluded.user_id'),
        created_at: eb.ref('excluded.created_at'),
      })),
    ),
);
const noteUser = defineStatement((db, p: { channel: string; key: number; userId: string }) =>
  db
    .updateTable('channel_messages')
    .set({ user_id: p.userId })
    .where('message_key', '=', p.key)
    .where('channel', '=', p.channel),
);
const userOfMessage = defineStatement((db, p: { channel: string; key: number }) =>
  db.selectFrom('channel_messages').select('user_id').where('message_key', '=', p.key).where('channel', '=', p.channel),
);
const redeem = defineScript(
  'channels.redeem',
  'durable',
  async (tx, input: Input<'redeem'>): Promise<Output<'redeem'>> => {
    const { key, codeHash, connection, now } = input;
    const { channel } = input.fence;
    if (!(await holdsChannel(tx, input.fence))) return { outcome: 'fenced' };
    const used = await tx.first(use, { provider: connection.provider, codeHash, now });
    if (used === undefined) {
      // The answer of an earlier try may have been lost.
      const userId = (await tx.first(userOfMessage, { channel, key }))?.user_id ?? null;
      return userId === null ? { outcome: 'invalid' } : { outcome: 'connected', userId };
    }
    const userId = used.user_id;
    await tx.run(connect, { ...connection, userId, createdAt: now });
    await tx.run(noteUser, { channel, key, userId });
    return { outcome: 'connected', userId };
  },
);

const toConnection = (row: {
  connection_id: string;
  user_id: string;
  provider: string;
  workspace_id: string;
  external_id: string;
  external_name: string;
  created_at: number;
}): ChannelConnection => ({
  connectionId: row.connection_id,
  userId: row.user_id,
  provider: row.provider,
  workspaceId: row.workspace_id,
  externalId: row.external_id,
  externalName: row.external_name,
  createdAt: row.created_at,
});
const ofAccount = defineStatement((db, p: { provider: string; workspaceId: string; externalId: string }) =>
  db
    .selectFrom('channel_connections')
    .selectAll()
    .where('provider', '=', p.provider)
    .where('workspace_id', '=', p.workspaceId)
    .where('external_id', '=', p.externalId),
);
const connectionOf = defineScript(
  'channels.connectionOf',
  'read',
  async (tx, input: Input<'connectionOf'>): Promise<ChannelConnection | null> => {
    const row = await tx.first(ofAccount, input);
    return row === undefined ? null : toConnection(row);
  },
);
const ofUser = defineStatement((db, p: { userId: string }) =>
  db.selectFrom('channel_connections').selectAll().where('user_id', '=', p.userId).orderBy('created_at').limit(MOST),
);
const connections = defineScript(
  'channels.connections',
  'read',
  async (tx, input: Input<'connections'>): Promise<ChannelConnection[]> =>
    (await tx.all(ofUser, input)).map(toConnection),
);
const remove = defineStatement((db, p: { userId: string; connectionId: string }) =>
  db.deleteFrom('channel_connections').where('connection_id', '=', p.connectionId).where('user_id', '=', p.userId),
);
const disconnect = defineScript(
  'channels.disconnect',
  'durable',
  async (tx, input: Input<'disconnect'>): Promise<boolean> => (await tx.run(remove, input)) === 1,
);

const begin = defineStatement((db, p: ChannelConversation & { threadId: string; now: number }) =>
  db
    .insertInto('channel_conversations')
    .values({
      channel: p.channel,
      chat_id: p.chatId,
      topic: p.topic,
      user_id: p.userId,
      thread_id: p.threadId,
      updated_at: p.now,
    })
    .onConflict((c) => c.columns(['channel', 'chat_id', 'topic', 'user_id']).doNothing()),
);
const replace = defineStatement((db, p: ChannelConversation & { threadId: string; now: number }) =>
  db
    .updateTable('channel_conversations')
    .set({ thread_id: p.threadId, updated_at: p.now })
    .where('channel', '=', p.channel)
    .where('chat_id', '=', p.chatId)
    .where('topic', '=', p.topic)
    .where('user_id', '=', p.userId),
);
const thread = defineStatement((db, p: ChannelConversation) =>
  db
    .selectFrom('channel_conversations')
    .select('thread_id')
    .where('channel', '=', p.channel)
    .where('chat_id', '=', p.chatId)
    .where('topic', '=', p.topic)
    .where('user_id', '=', p.userId),
);
const converse = defineScript(
  'channels.converse',
  'durable',
  async (tx, input: Input<'converse'>): Promise<string | null> => {
    const { conversation, threadId, fresh, now } = input;
    if (!(await holdsChannel(tx, input.fence))) return null;
    const row = { ...conversation, threadId, now };
    if ((await tx.run(begin, row)) === 0 && fresh) await tx.run(replace, row);
    return (await tx.first(thread, conversation))?.thread_id ?? threadId;
  },
);
const threadOf = defineScript(
  'channels.threadOf',
  'read',
  async (tx, input: ChannelConversation): Promise<string | null> => (await tx.first(thread, input))?.thread_id ?? null,
);

/** With the thread: the next message of the conversation begins another one. */
export const deleteConversations = defineStatement((db, p: { threadId: string }) =>
  db.deleteFrom('channel_conversations').where('thread_id', '=', p.threadId),
);

export const channelAccountScripts = {
  'channels.issueCode': issueCode,
  'channels.redeem': redeem,
  'channels.connectionOf': connectionOf,
  'channels.connections': connections,
  'channels.disconnect': disconnect,
  'channels.converse': converse,
  'channels.threadOf': threadOf,
};
