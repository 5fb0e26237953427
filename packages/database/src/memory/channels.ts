import type {
  ChannelConnection,
  ChannelConversation,
  ChannelEntry,
  ChannelFence,
  ChannelMessage,
  ChannelStore,
} from '@reindeer/protocol';
import type { MemoryDatabase } from './data.ts';
import { copyJson } from './data.ts';
import type { Transact } from './runs.ts';

export interface ChannelLeaseRow {
  owner: string;
  token: string;
  expiresAt: number;
}
export interface ChannelMessageRow {
  entry: ChannelEntry;
  /** What makes a second delivery the same message; it outlives the message itself. */
  readonly messageId: string;
  updatedAt: number;
}
export interface ChannelCodeRow {
  readonly provider: string;
  readonly userId: string;
  readonly expiresAt: number;
}

/** Everything of channels, by channel, id or account. */
export class ChannelTables {
  readonly leases = new Map<string, ChannelLeaseRow>();
  /** In the order of arrival. */
  readonly messages = new Map<number, ChannelMessageRow>();
  /** By conversation, as JSON. */
  readonly conversations = new Map<string, { readonly of: ChannelConversation; threadId: string }>();
  /** By hash. */
  readonly codes = new Map<string, ChannelCodeRow>();
  /** By account, as JSON. */
  readonly connections = new Map<string, ChannelConnection>();
  #newest = 0;

  nextKey(): number {
    this.#newest += 1;
    return this.#newest;
  }

  deleteConversations(threadId: string): void {
    for (const [key, row] of this.conversations) if (row.threadId === threadId) this.conversations.delete(key);
  }
}

const isOpen = ({ state }: ChannelEntry): boolean => state !== 'done' && state !== 'failed';
const conversationKey = (of: ChannelConversation): string =>
  JSON.stringify([of.channel, of.chatId, of.topic, of.userId]);
const accountKey = (of: { provider: string; workspaceId: string; externalId: string }): string =>
  JSON.stringify([of.provider, of.workspaceId, of.externalId]);

const received = (key: number, channel: string, round: number, message: ChannelMessage, now: number): ChannelEntry => ({
  key,
  channel,
  round,
  state: 'received',
  message: copyJson(message),
  userId: null,
  work: null,
  shownId: null,
  reply: null,
  tries: 0,
  dueAt: now,
  receivedAt: now,
});

export function memoryChannels(database: MemoryDatabase, transact: Transact): ChannelStore {
  const tables = database.channels;
  const holds = ({ channel, token }: ChannelFence): boolean => tables.leases.get(channel)?.token === token;
  const messageOf = (channel: string, key: number): ChannelMessageRow | null => {
    const row = tables.messages.get(key);
    return row?.entry.channel === channel ? row : null;
  };

  return {
    acquire: ({ channel, owner, token, leaseMs, graceMs, now }) =>
      transact(() => {
        const row = tables.leases.get(channel);
        if (row !== undefined && row.expiresAt > now - graceMs && row.owner !== owner)
          return { outcome: 'busy', until: row.expiresAt + graceMs };
        tables.leases.set(channel, { owner, token, expiresAt: now + leaseMs });
        return { outcome: 'held' };
      }),
    renew: ({ fence, leaseMs, now }) =>
      transact(() => {
        const row = tables.leases.get(fence.channel);
        if (row === undefined || !holds(fence)) return false;
        row.expiresAt = now + leaseMs;
        return true;
      }),
    release: (fence) =>
      transact(() => {
        if (holds(fence)) tables.leases.delete(fence.channel);
      }),

    receive: ({ fence, messages, limit, now }) =>
      transact(() => {
        const { channel } = fence;
        if (!holds(fence)) return { outcome: 'fenced' };
        const rows = [...tables.messages.values()].filter(({ entry }) => entry.channel === channel);
        if (rows.filter(({ entry }) => isOpen(entry)).length + messages.length > limit) return { outcome: 'full' };
        let fresh = 0;
        for (const message of messages) {
          const known = rows.find(({ messageId }) => messageId === message.messageId);
          if (known !== undefined) {
            if (known.entry.state !== 'failed') continue;
            known.entry = received(known.entry.key, channel, known.entry.round + 1, message, now);
            known.updatedAt = now;
          } else {
            const key = tables.nextKey();
            const row = {
              entry: received(key, channel, 1, message, now),
              messageId: message.messageId,
              updatedAt: now,
            };
            tables.messages.set(key, row);
            rows.push(row);
          }
          fresh += 1;
        }
        return { outcome: 'taken', fresh };
      }),
    due: ({ channel, limit, now }) =>
      transact(() =>
        [...tables.messages.values()]
          .filter(({ entry }) => entry.channel === channel && isOpen(entry) && entry.dueAt <= now)
          .sort((a, b) => a.entry.key - b.entry.key)
          .slice(0, limit)
          .map(({ entry }) => copyJson(entry)),
      ),
    progress: ({ fence, key, progress, now }) =>
      transact(() => {
        if (!holds(fence)) return false;
        const row = messageOf(fence.channel, key);
        if (row === null || !isOpen(row.entry)) return true;
        const { state, userId, work, shownId, reply, tries, dueAt } = copyJson(progress);
        row.entry = { ...row.entry, state, userId, work, shownId, reply, tries, dueAt };
        row.updatedAt = now;
        return true;
      }),
    forget: ({ channel, before }) =>
      transact(() => {
        for (const [key, { entry, updatedAt }] of tables.messages)
          if (entry.channel === channel && !isOpen(entry) && updatedAt < before) tables.messages.delete(key);
      }),

    converse: ({ fence, conversation, threadId, fresh }) =>
      transact(() => {
        if (!holds(fence)) return null;
        const key = conversationKey(conversation);
        const row = tables.conversations.get(key);
        if (row !== undefined && !fresh) return row.threadId;
        tables.conversations.set(key, { of: { ...conversation }, threadId });
        return threadId;
      }),
    threadOf: (conversation) =>
      transact(() => tables.conversations.get(conversationKey(conversation))?.threadId ?? null),

    issueCode: ({ provider, userId, codeHash, expiresAt, limit, now }) =>
      transact(() => {
        let own = 0;
        for (const [hash, code] of tables.codes) {
          if (code.provider !== provider || code.userId !== userId) continue;
          if (code.expiresAt <= now) tables.codes.delete(hash);
          else own += 1;
        }
        if (own >= limit) return 'full';
        tables.codes.set(codeHash, { provider, userId, expiresAt });
        return 'issued';
      }),
    redeem: ({ fence, key, codeHash, connection, now }) =>
      transact(() => {
        if (!holds(fence)) return { outcome: 'fenced' };
        const row = messageOf(fence.channel, key);
        const code = tables.codes.get(codeHash);
        if (code === undefined || code.provider !== connection.provider || code.expiresAt <= now) {
          const userId = row?.entry.userId ?? null;
          return userId === null ? { outcome: 'invalid' } : { outcome: 'connected', userId };
        }
        const { userId } = code;
        tables.codes.delete(codeHash);
        tables.connections.set(accountKey(connection), { ...connection, userId, createdAt: now });
        if (row !== null) row.entry = { ...row.entry, userId };
        return { outcome: 'connected', userId };
      }),
    connectionOf: (account) =>
      transact(() => {
        const found = tables.connections.get(accountKey(account));
        return found === undefined ? null : { ...found };
      }),
    connections: ({ userId }) =>
      transact(() =>
        [...tables.connections.values()]
          .filter((one) => one.userId === userId)
          .sort((a, b) => a.createdAt - b.createdAt)
          .slice(0, 100)
          .map((one) => ({ ...one })),
      ),
    disconnect: ({ userId, connectionId }) =>
      transact(() => {
        for (const [key, one] of tables.connections)
          if (one.connectionId === connectionId && one.userId === userId) return tables.connections.delete(key);
        return false;
      }),
  };
}
