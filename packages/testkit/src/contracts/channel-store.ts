import type { ChannelEntry, ChannelFence, ChannelMessage, ChannelProgress, Stores } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { Scene, StoresFactory } from './scene.ts';
import { scenes, T0 } from './scene.ts';

export const channelMessage = (part: Partial<ChannelMessage> = {}): ChannelMessage => ({
  messageId: 'm1',
  chatId: 'chat',
  group: false,
  topic: '',
  workspaceId: '',
  senderId: '7',
  senderName: 'Ann',
  text: 'hello',
  files: [],
  answerTo: null,
  ...part,
});

export const channelProgress = (part: Partial<ChannelProgress> = {}): ChannelProgress => ({
  state: 'received',
  userId: null,
  work: null,
  shownId: null,
  reply: null,
  tries: 0,
  dueAt: T0,
  ...part,
});

const CHANNEL = 'telegram:1';
const LEASE = 30_000;
const GRACE = 3_000;
const WORK = {
  threadId: 'thread',
  assistantId: 'agent',
  text: 'hello',
  config: { recursion_limit: 100 },
  context: { channel_name: 'telegram' },
  files: [{ filename: 'a.txt', size: 3, path: '/mnt/user-data/uploads/a.txt' }],
  notices: ['b.zip is too large.'],
};

/** What every channel store must do. */
export function channelStoreContract(name: string, factory: StoresFactory): void {
  describe(`channel store: ${name}`, () => {
    const scene = scenes(factory);
    const acquire = (stores: Stores, owner: string, part: { now?: number; token?: string; channel?: string } = {}) =>
      stores.channels.acquire({
        channel: part.channel ?? CHANNEL,
        owner,
        token: part.token ?? `${owner}-token`,
        leaseMs: LEASE,
        graceMs: GRACE,
        now: part.now ?? T0,
      });
    const held = async (s: Scene, owner = 'a', now = T0): Promise<ChannelFence> => {
      expect(await acquire(s.a, owner, { now })).toMatchObject({ outcome: 'held' });
      return { channel: CHANNEL, token: `${owner}-token` };
    };
    const receive = (
      stores: Stores,
      fence: ChannelFence,
      messages: readonly ChannelMessage[],
      part: { limit?: number; now?: number } = {},
    ) =>
      stores.channels.receive({
        fence,
        messages,
        limit: part.limit ?? 1_000,
        now: part.now ?? T0,
      });
    const due = (s: Scene, now = T0, channel = CHANNEL) => s.b.channels.due({ channel, limit: 100, now });
    const only = async (s: Scene, now = T0): Promise<ChannelEntry> => {
      const [entry] = await due(s, now);
      if (entry === undefined) throw new Error('The scene expected a message.');
      return entry;
    };
    const progress = (stores: Stores, fence: ChannelFence, key: number, part: Partial<ChannelProgress>, now = T0) =>
      stores.channels.progress({ fence, key, progress: channelProgress(part), now });

    test('a channel has one holder, until its time and the grace are over or it gives it up', async () => {
      const s = await scene();
      expect(await acquire(s.a, 'a')).toEqual({ outcome: 'held' });
      const a = { channel: CHANNEL, token: 'a-token' };
      expect(await acquire(s.b, 'b')).toEqual({ outcome: 'busy', until: T0 + LEASE + GRACE });
      expect(await acquire(s.b, 'b', { channel: 'telegram:2' })).toMatchObject({ outcome: 'held' });
      expect(await s.a.channels.renew({ fence: a, leaseMs: LEASE, now: T0 + 10_000 })).toBe(true);
      const over = T0 + 10_000 + LEASE + GRACE;
      expect(await acquire(s.b, 'b', { now: over - 1 })).toMatchObject({ outcome: 'busy' });
      expect(await acquire(s.b, 'b', { now: over })).toEqual({ outcome: 'held' });
      expect(await s.a.channels.renew({ fence: a, leaseMs: LEASE, now: over })).toBe(false);
      // The release of one that lost it frees nothing.
      await s.a.channels.release(a);
      expect(await acquire(s.a, 'a', { now: over })).toMatchObject({ outcome: 'busy' });
      await s.b.channels.release({ channel: CHANNEL, token: 'b-token' });
      expect(await acquire(s.a, 'a', { now: over })).toEqual({ outcome: 'held' });
    });

    test('who comes back under its own name does not wait, and its earlier token writes nothing', async () => {
      const s = await scene();
      const first = await held(s);
      await receive(s.a, first, [channelMessage()]);
      const { key } = await only(s);
      expect(await acquire(s.a, 'a', { token: 'second' })).toMatchObject({ outcome: 'held' });
      expect(await receive(s.a, first, [channelMessage({ messageId: 'm2' })])).toEqual({
        outcome: 'fenced',
      });
      expect(await progress(s.a, first, key, { state: 'done' })).toBe(false);
      const conversation = { channel: CHANNEL, chatId: 'chat', topic: '', userId: 'ann' };
      const converse = { conversation, threadId: 't', fresh: true, now: T0 };
      expect(await s.a.channels.converse({ fence: first, ...converse })).toBeNull();
      const connection = {
        connectionId: 'c',
        provider: 'telegram',
        workspaceId: '',
        externalId: '7',
        externalName: 'Ann',
      };
      expect(await s.a.channels.redeem({ fence: first, key, codeHash: 'h', connection, now: T0 })).toEqual({
        outcome: 'fenced',
      });
      expect((await due(s)).map((entry) => entry.message.messageId)).toEqual(['m1']);
    });

    test('a message is taken once', verifies('API-14'), async () => {
      const s = await scene();
      const fence = await held(s);
      const files = [{ id: 'f', name: 'a.txt', size: null }];
      const message = channelMessage({ files, topic: '5', answerTo: '5', group: true });
      expect(await receive(s.a, fence, [message, channelMessage({ messageId: 'm2' })])).toEqual({
        outcome: 'taken',
        fresh: 2,
      });
      expect(await receive(s.a, fence, [channelMessage({ text: 'again' })])).toEqual({
        outcome: 'taken',
        fresh: 0,
      });
      const entries = await due(s);
      expect(entries.map((entry) => entry.message.messageId)).toEqual(['m1', 'm2']);
      expect(entries[0]).toEqual({
        ...channelProgress(),
        key: entries[0]?.key,
        channel: CHANNEL,
        round: 1,
        message,
        receivedAt: T0,
      });
      // Also when it is over, and in another channel it is another one.
      await progress(s.a, fence, entries[0]?.key ?? 0, { state: 'done' });
      expect(await receive(s.a, fence, [message])).toMatchObject({ fresh: 0 });
      expect(await due(s)).toHaveLength(1);
      expect(await acquire(s.a, 'a', { channel: 'telegram:2' })).toMatchObject({ outcome: 'held' });
      expect(await receive(s.a, { channel: 'telegram:2', token: 'a-token' }, [message])).toMatchObject({ fresh: 1 });
    });

    test('one that failed is new when it comes again, and only such a one', verifies('API-14'), async () => {
      const s = await scene();
      const fence = await held(s);
      await receive(s.a, fence, [channelMessage()]);
      const { key } = await only(s);
      await progress(s.a, fence, key, { state: 'answering', userId: 'ann', work: WORK, shownId: '9', tries: 3 });
      expect(await receive(s.a, fence, [channelMessage()])).toMatchObject({ fresh: 0 });
      await progress(s.a, fence, key, { state: 'failed' });
      expect(await due(s)).toEqual([]);
      expect(await receive(s.a, fence, [channelMessage()], { now: T0 + 5 })).toMatchObject({ fresh: 1 });
      expect(await due(s, T0 + 5)).toEqual([
        {
          ...channelProgress({ dueAt: T0 + 5 }),
          key,
          channel: CHANNEL,
          round: 2,
          message: channelMessage(),
          receivedAt: T0 + 5,
        },
      ]);
    });

    test('past the bound nothing is taken', async () => {
      const s = await scene();
      const fence = await held(s);
      await receive(s.a, fence, [channelMessage()], { limit: 2 });
      const more = [channelMessage({ messageId: 'm2' }), channelMessage({ messageId: 'm3' })];
      expect(await receive(s.a, fence, more, { limit: 2 })).toEqual({ outcome: 'full' });
      expect(await due(s)).toHaveLength(1);
      // What is over does not count.
      await progress(s.a, fence, (await only(s)).key, { state: 'done' });
      expect(await receive(s.a, fence, more, { limit: 2 })).toMatchObject({ fresh: 2 });
    });

    test('how far a message is can be read by the next holder, and an end is final', async () => {
      const s = await scene();
      const fence = await held(s);
      await receive(s.a, fence, [channelMessage()]);
      const { key } = await only(s);
      const reply = {
        parts: [
          { kind: 'text' as const, text: 'Hi 🦌' },
          { kind: 'file' as const, path: '/mnt/user-data/outputs/a.png' },
        ],
        sent: 1,
        failed: false,
      };
      const part = { state: 'answering' as const, userId: 'ann', work: WORK, shownId: '99', reply, tries: 2 };
      expect(await progress(s.a, fence, key, { ...part, dueAt: T0 + 100 })).toBe(true);
      expect(await due(s, T0 + 99)).toEqual([]);
      expect(await only(s, T0 + 100)).toMatchObject({ ...part, message: channelMessage() });
      expect(await progress(s.a, fence, key, { state: 'done' })).toBe(true);
      // A repeat of a write that was on its way changes nothing.
      expect(await progress(s.a, fence, key, part)).toBe(true);
      expect(await due(s, T0 + 1_000)).toEqual([]);
      await s.a.channels.forget({ channel: CHANNEL, before: T0 });
      expect(await receive(s.a, fence, [channelMessage()])).toMatchObject({ fresh: 0 });
      await s.a.channels.forget({ channel: CHANNEL, before: T0 + 1 });
      expect(await receive(s.a, fence, [channelMessage()])).toMatchObject({ fresh: 1 });
      await s.a.channels.forget({ channel: CHANNEL, before: T0 + 1_000 });
      expect(await due(s)).toHaveLength(1);
    });

    test('a code connects once, within its time, at its provider', verifies('API-14'), async () => {
      const s = await scene();
      const fence = await held(s);
      await receive(s.a, fence, [channelMessage(), channelMessage({ messageId: 'm2' })]);
      const [one, two] = await due(s);
      const account = { provider: 'telegram', workspaceId: '', externalId: '7' };
      const connection = { ...account, connectionId: 'c1', externalName: 'Ann' };
      const issue = (codeHash: string, userId = 'ann', expiresAt = T0 + 600_000, now = T0) =>
        s.b.channels.issueCode({ provider: 'telegram', userId, codeHash, expiresAt, limit: 5, now });
      const redeem = (entry: ChannelEntry | undefined, codeHash: string, part = connection, now = T0) =>
        s.a.channels.redeem({ fence, key: entry?.key ?? 0, codeHash, connection: part, now });
      expect(await issue('h1')).toBe('issued');
      expect(await redeem(one, 'other')).toEqual({ outcome: 'invalid' });
      expect(await redeem(one, 'h1', { ...connection, provider: 'slack' })).toEqual({ outcome: 'invalid' });
      expect(await redeem(one, 'h1', connection, T0 + 600_000)).toEqual({ outcome: 'invalid' });
      expect(await s.b.channels.connectionOf(account)).toBeNull();
      expect(await redeem(one, 'h1')).toEqual({ outcome: 'connected', userId: 'ann' });
      // The answer was lost and the message is worked on again; somebody else cannot use the code.
      expect(await redeem(one, 'h1')).toEqual({ outcome: 'connected', userId: 'ann' });
      expect(await redeem(two, 'h1')).toEqual({ outcome: 'invalid' });
      const stored = { ...connection, userId: 'ann', createdAt: T0 };
      expect(await s.b.channels.connectionOf(account)).toEqual(stored);
      expect(await s.b.channels.connectionOf({ ...account, workspaceId: 'T1' })).toBeNull();
      expect(await s.b.channels.connections({ userId: 'ann' })).toEqual([stored]);

      // A new bind moves the account.
      await issue('h2', 'bob');
      expect(await redeem(two, 'h2', { ...connection, connectionId: 'c2' }, T0 + 1)).toMatchObject({ userId: 'bob' });
      expect(await s.b.channels.connections({ userId: 'ann' })).toEqual([]);
      expect(await s.b.channels.connectionOf(account)).toMatchObject({ userId: 'bob', connectionId: 'c2' });
      expect(await s.b.channels.disconnect({ userId: 'ann', connectionId: 'c2' })).toBe(false);
      expect(await s.b.channels.disconnect({ userId: 'bob', connectionId: 'c2' })).toBe(true);
      expect(await s.b.channels.disconnect({ userId: 'bob', connectionId: 'c2' })).toBe(false);
      expect(await s.b.channels.connectionOf(account)).toBeNull();
    });

    test('one code, sent twice at once, connects one of the two', async () => {
      const s = await scene();
      const fence = await held(s);
      await receive(s.a, fence, [channelMessage(), channelMessage({ messageId: 'm2', senderId: '8' })]);
      await s.a.channels.issueCode({
        provider: 'telegram',
        userId: 'ann',
        codeHash: 'h',
        expiresAt: T0 + 600_000,
        limit: 5,
        now: T0,
      });
      const answers = await Promise.all(
        (await due(s)).map((entry, index) =>
          (index === 0 ? s.a : s.b).channels.redeem({
            fence,
            key: entry.key,
            codeHash: 'h',
            connection: {
              connectionId: `c${index}`,
              provider: 'telegram',
              workspaceId: '',
              externalId: entry.message.senderId,
              externalName: '',
            },
            now: T0,
          }),
        ),
      );
      expect(answers.map(({ outcome }) => outcome).sort()).toEqual(['connected', 'invalid']);
      expect(await s.a.channels.connections({ userId: 'ann' })).toHaveLength(1);
    });

    test('a user has five codes at once, however they are asked for, and those that are over do not count', async () => {
      const s = await scene();
      const issue = (stores: Stores, n: number, now = T0, provider = 'telegram') =>
        stores.channels.issueCode({
          provider,
          userId: 'ann',
          codeHash: `${provider}-${n}-${now}`,
          expiresAt: now + 600_000,
          limit: 5,
          now,
        });
      const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => issue(n % 2 === 0 ? s.a : s.b, n)));
      expect(answers.filter((answer) => answer === 'issued')).toHaveLength(5);
      expect(await issue(s.a, 1, T0, 'slack')).toBe('issued');
      expect(await issue(s.a, 9, T0 + 599_999)).toBe('full');
      expect(await issue(s.a, 9, T0 + 600_000)).toBe('issued');
    });

    test('a conversation gets one thread under a race, and another one when it is asked for', async () => {
      const s = await scene();
      const fence = await held(s);
      const conversation = { channel: CHANNEL, chatId: 'chat', topic: '', userId: 'ann' };
      expect(await s.a.channels.threadOf(conversation)).toBeNull();
      const converse = (stores: Stores, threadId: string, part: Partial<typeof conversation> = {}, fresh = false) =>
        stores.channels.converse({
          fence,
          conversation: { ...conversation, ...part },
          threadId,
          fresh,
          now: T0,
        });
      const [one, two] = await Promise.all([converse(s.a, 't1'), converse(s.b, 't2')]);
      expect(one).toBe(two);
      expect(['t1', 't2']).toContain(one);
      expect(await s.b.channels.threadOf(conversation)).toBe(one);
      // Of another user, topic or chat it is another one.
      expect(await converse(s.a, 't3', { userId: 'bob' })).toBe('t3');
      expect(await converse(s.a, 't4', { topic: '5' })).toBe('t4');
      expect(await converse(s.a, 't5', { chatId: 'other' })).toBe('t5');
      expect(await converse(s.a, 't6', {}, true)).toBe('t6');
      expect(await s.b.channels.threadOf(conversation)).toBe('t6');
      expect(await s.b.channels.threadOf({ ...conversation, userId: 'bob' })).toBe('t3');
    });

    test('with its thread a conversation goes', async () => {
      const s = await scene();
      const fence = await held(s);
      const conversation = { channel: CHANNEL, chatId: 'chat', topic: '', userId: 'user' };
      await s.a.threads.create({ threadId: 'thread', userId: 'user', metadata: {}, now: T0 });
      await s.a.channels.converse({ fence, conversation, threadId: 'thread', fresh: false, now: T0 });
      const { fence: right } = await s.admit({ kind: 'delete', threadId: 'thread', userId: 'user' });
      expect(await s.a.threads.delete({ fence: right, threadId: 'thread', userId: 'user' })).toEqual({ outcome: 'ok' });
      expect(await s.b.channels.threadOf(conversation)).toBeNull();
    });
  });
}
