import { NO_USAGE } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { feedbackTests } from './feedback-store.ts';
import type { Scene, StoresFactory } from './scene.ts';
import { checkpointPut, packed, scenes, T0 } from './scene.ts';

/** What every thread store must do. */
export function threadStoreContract(name: string, factory: StoresFactory): void {
  describe(`thread store: ${name}`, () => {
    const scene = scenes(factory);
    const own = { threadId: 'thread', userId: 'user' };
    const create = (s: Scene, threadId: string, part: { metadata?: object; now?: number; userId?: string } = {}) =>
      s.a.threads.create({
        threadId,
        userId: part.userId ?? 'user',
        metadata: { ...part.metadata },
        now: part.now ?? T0,
      });
    const search = async (s: Scene, part: Partial<Parameters<Scene['a']['threads']['search']>[0]> = {}) =>
      (await s.a.threads.search({ userId: 'user', metadata: {}, status: null, limit: 100, offset: 0, ...part })).map(
        (thread) => thread.threadId,
      );

    describe('feedback', () => feedbackTests(factory));

    test('creates once, also when many ask at once', async () => {
      const s = await scene();
      const results = await Promise.all(
        Array.from({ length: 10 }, (_, n) =>
          (n % 2 === 0 ? s.a : s.b).threads.create({ ...own, metadata: { n }, now: T0 + n }),
        ),
      );
      expect(results.map((result) => result.outcome).sort()).toEqual(['created', ...new Array(9).fill('exists')]);
      const thread = await s.b.threads.get(own);
      expect(thread).toEqual({
        ...own,
        metadata: thread?.metadata,
        title: null,
        status: 'idle',
        createdAt: thread?.createdAt,
        updatedAt: thread?.createdAt,
      });
      for (const result of results) if ('thread' in result) expect(result.thread).toEqual(thread);
    });

    test('another user’s thread is not found, whatever is asked', async () => {
      const s = await scene();
      await create(s, 'thread', { metadata: { secret: 1 } });
      const { fence } = await s.admit({ kind: 'delete' });
      const before = await s.picture();
      const intruder = { threadId: 'thread', userId: 'intruder' };
      expect(await s.a.threads.create({ ...intruder, metadata: {}, now: T0 })).toEqual({ outcome: 'not_found' });
      expect(await s.a.threads.get(intruder)).toBeNull();
      expect(
        await s.a.threads.update({ ...intruder, metadata: { x: 1 }, title: 'x', touch: true, now: T0 + 1 }),
      ).toBeNull();
      expect(await s.a.threads.delete({ fence, ...intruder })).toEqual({ outcome: 'fenced' });
      expect(
        await s.a.threads.copy({ fromThreadId: 'thread', toThreadId: 'stolen', userId: 'intruder', now: T0 }),
      ).toBeNull();
      expect(await search(s, { userId: 'intruder' })).toEqual([]);
      expect(await s.picture()).toEqual(before);
    });

    test('status follows the runs', async () => {
      const s = await scene();
      const status = async () => (await s.a.threads.get(own))?.status;
      await create(s, 'thread');
      expect(await status()).toBe('idle');
      const first = await s.admit();
      expect(await status()).toBe('busy');
      await s.start(first.fence);
      expect(await status()).toBe('busy');
      await s.finalize(first.fence, 'error', { error: 'x' });
      expect(await status()).toBe('error');
      await s.ended('success', { now: T0 + 1 });
      await expect(await status()).toBe('idle');
      await s.ended('timeout', { now: T0 + 2 });
      expect(await status()).toBe('error');
      // A run that ended well because its graph asks something leaves the thread waiting for the answer.
      const asking = await s.running({ now: T0 + 2 });
      await s.a.runs.finalize({
        fence: asking.fence,
        status: 'success',
        error: null,
        stopReason: 'interrupt',
        usage: NO_USAGE,
        unlessCancelled: true,
        now: T0 + 2,
      });
      expect(await status()).toBe('interrupted');
      await s.ended('success', { now: T0 + 2 });
      expect(await status()).toBe('idle');
      await s.ended('interrupted', { now: T0 + 3 });
      expect(await status()).toBe('interrupted');
      const reserved = await s.admit({ kind: 'checkpoint_write', now: T0 + 4 });
      expect(await status()).toBe('interrupted');
      await s.a.runs.release(reserved.fence);
      // Superseded but not yet finalized: the newer run decides.
      const older = await s.running({ now: T0 + 5 });
      const newer = await s.admit({ multitaskStrategy: 'rollback', now: T0 + 6 });
      expect(await status()).toBe('busy');
      await s.finalize(newer.fence, 'success', { now: T0 + 7 });
      expect(await status()).toBe('idle');
      await s.finalize(older.fence, 'error', { now: T0 + 8 });
      expect(await status()).toBe('idle');
    });

    test('search: pinned first, then newest; pages; metadata; status', async () => {
      const s = await scene();
      await create(s, 'old', { now: T0 + 1, metadata: { color: 'red', n: 1 } });
      await create(s, 'new', { now: T0 + 9, metadata: { color: 'red', n: 2, tags: ['x', { y: 1 }] } });
      await create(s, 'pinned', { now: T0, metadata: { pinned: true, color: 'blue' } });
      await create(s, 'not-pinned', { now: T0 + 5, metadata: { pinned: 'yes', n: null } });
      await create(s, 'theirs', { now: T0 + 20, userId: 'other', metadata: { color: 'red' } });
      const all = ['pinned', 'new', 'not-pinned', 'old'];
      expect(await search(s)).toEqual(all);
      expect([...(await search(s, { limit: 3 })), ...(await search(s, { limit: 3, offset: 3 }))]).toEqual(all);
      expect(await search(s, { metadata: { color: 'red' } })).toEqual(['new', 'old']);
      expect(await search(s, { metadata: { color: 'red', n: 1 } })).toEqual(['old']);
      expect(await search(s, { metadata: { n: '1' } })).toEqual([]);
      expect(await search(s, { metadata: { tags: ['x', { y: 1 }] } })).toEqual(['new']);
      expect(await search(s, { metadata: { tags: ['x'] } })).toEqual([]);
      expect(await search(s, { metadata: { absent: 1 } })).toEqual([]);
      await s.running({ threadId: 'old', createThread: false });
      expect(await search(s, { status: 'busy' })).toEqual(['old']);
      expect(await search(s, { status: 'idle' })).toEqual(['pinned', 'new', 'not-pinned']);
      expect(await search(s, { status: 'idle', limit: 1, offset: 1 })).toEqual(['new']);
    });

    test('metadata keys may hold anything', async () => {
      const s = await scene();
      const odd = { 'a.b': 1, 'q"uote': 2, "it's": 3, '$[0]': 4, 'ünï 🦌': 5, '': 6 };
      await create(s, 'thread', { metadata: odd });
      expect((await s.a.threads.get(own))?.metadata).toEqual(odd);
      for (const [key, value] of Object.entries(odd)) {
        expect(await search(s, { metadata: { [key]: value } })).toEqual(['thread']);
        expect(await search(s, { metadata: { [key]: 99 } })).toEqual([]);
      }
    });

    test('update merges metadata, sets the title, and touches on request', async () => {
      const s = await scene();
      await create(s, 'thread', { metadata: { a: 1, b: { c: 2 }, d: 3 } });
      const quiet = await s.a.threads.update({
        ...own,
        metadata: { b: { e: 4 }, d: null, f: 'new' },
        touch: false,
        now: T0 + 5,
      });
      expect(quiet).toMatchObject({ metadata: { a: 1, b: { e: 4 }, f: 'new' }, title: null, updatedAt: T0 });
      expect(Object.keys(quiet?.metadata ?? {})).not.toContain('d');
      const titled = await s.a.threads.update({ ...own, metadata: {}, title: 'Reindeer', touch: true, now: T0 + 9 });
      expect(titled).toMatchObject({ title: 'Reindeer', updatedAt: T0 + 9, createdAt: T0 });
      await s.a.threads.update({ ...own, metadata: { pinned: true }, touch: false, now: T0 + 9 });
      await create(s, 'newer', { now: T0 + 50 });
      expect(await s.b.threads.get(own)).toMatchObject({ title: 'Reindeer', metadata: { a: 1, pinned: true } });
      expect(await search(s)).toEqual(['thread', 'newer']);
      await s.a.threads.update({ ...own, metadata: { pinned: null }, title: null, touch: false, now: T0 + 9 });
      expect(await s.a.threads.get(own)).toMatchObject({ title: null });
      expect(await search(s)).toEqual(['newer', 'thread']);
      expect(
        await s.a.threads.update({ threadId: 'nowhere', userId: 'user', metadata: {}, touch: true, now: T0 }),
      ).toBeNull();
    });

    test('updates at once are all kept', async () => {
      const s = await scene();
      await create(s, 'thread');
      await Promise.all(
        Array.from({ length: 20 }, (_, n) =>
          (n % 2 === 0 ? s.a : s.b).threads.update({ ...own, metadata: { [`k${n}`]: n }, touch: false, now: T0 }),
        ),
      );
      expect(Object.keys((await s.a.threads.get(own))?.metadata ?? {})).toHaveLength(20);
    });

    test('a run moves its thread up', async () => {
      const s = await scene();
      await create(s, 'one', { now: T0 });
      await create(s, 'two', { now: T0 + 1 });
      await s.running({ threadId: 'one', now: T0 + 2 });
      expect(await search(s)).toEqual(['one', 'two']);
    });

    test('delete takes everything of the thread, for the holder of its delete reservation only', async () => {
      const s = await scene();
      const ended = await s.running({ idempotencyKey: 'key' });
      await s.a.checkpoints.put(checkpointPut(ended.fence, 'c1'));
      await s.a.journal.begin({
        fence: ended.fence,
        key: { threadId: 'thread', messageId: 'm', index: 0 },
        toolCallId: null,
        name: 'bash',
        attempt: 1,
        again: false,
        now: T0,
      });
      expect(await s.a.threads.delete({ fence: ended.fence, ...own })).toEqual({ outcome: 'fenced' });
      await s.finalize(ended.fence, 'success');
      const other = await s.running({ threadId: 'other' });
      const writer = await s.admit({ kind: 'checkpoint_write' });
      expect(await s.a.threads.delete({ fence: writer.fence, ...own })).toEqual({ outcome: 'fenced' });
      await s.a.runs.release(writer.fence);
      const { fence } = await s.admit({ kind: 'delete' });
      expect(await s.a.threads.delete({ fence: { ...fence, token: 'stale' }, ...own })).toEqual({ outcome: 'fenced' });
      expect(await s.a.threads.delete({ fence, threadId: 'other', userId: 'user' })).toEqual({ outcome: 'fenced' });
      expect(await s.a.runs.get(ended.run.runId)).not.toBeNull();

      expect(await s.a.threads.delete({ fence, ...own })).toEqual({ outcome: 'ok' });
      expect(await s.a.threads.get(own)).toBeNull();
      expect(await s.a.runs.get(ended.run.runId)).toBeNull();
      expect(await s.a.runs.active('thread')).toEqual([]);
      expect(await s.a.journal.unfinished('thread')).toEqual([]);
      expect(await s.a.checkpoints.load({ threadId: 'thread', ns: '', checkpointId: null })).toBeNull();
      const { facts } = await s.a.log.read({ threadId: 'thread', runId: null, afterSeq: 0, limit: 9, maxBytes: 1e6 });
      expect(facts).toEqual([]);
      expect(await search(s)).toEqual(['other']);
      expect(await s.a.runs.get(other.run.runId)).toMatchObject({ status: 'running' });
      // Nothing is left that would stand in the way of a thread of the same name, not even the key.
      expect((await s.a.runs.admit(s.admission({ idempotencyKey: 'key' }))).outcome).toBe('admitted');
    });

    test('copy takes state and title into a new thread, and nothing of the runs', async () => {
      const s = await scene();
      const { fence } = await s.running();
      await s.a.checkpoints.put(checkpointPut(fence, 'c1', 'first'));
      await s.a.checkpoints.put(checkpointPut(fence, 'c2', 'second'));
      await s.a.threads.update({ ...own, metadata: {}, title: 'Reindeer', touch: false, now: T0 });
      const copied = await s.a.threads.copy({
        fromThreadId: 'thread',
        toThreadId: 'copy',
        userId: 'user',
        now: T0 + 30,
      });
      expect(copied).toMatchObject({ threadId: 'copy', title: 'Reindeer', status: 'idle', createdAt: T0 + 30 });
      const load = async (threadId: string) =>
        (await s.a.checkpoints.load({ threadId, ns: '', checkpointId: null }))?.channels;
      expect(await load('copy')).toEqual(await load('thread'));
      expect(
        await s.a.checkpoints.list({
          threadId: 'copy',
          ns: null,
          checkpointId: null,
          before: null,
          limit: null,
          filter: {},
        }),
      ).toHaveLength(2);
      expect(await s.a.runs.active('copy')).toEqual([]);
      expect(
        (await s.a.log.read({ threadId: 'copy', runId: null, afterSeq: 0, limit: 9, maxBytes: 1e6 })).facts,
      ).toEqual([]);

      // The two go their own ways.
      const next = await s.running({ threadId: 'copy' });
      await s.a.checkpoints.put({
        ...checkpointPut(next.fence, 'c3', 'third', 'copy'),
        channels: [{ name: 'text', version: 'c3', value: packed('third') }],
      });
      expect(JSON.parse((await load('thread'))?.[0]?.json ?? '')).toBe('second');
      const before = await s.picture('copy');
      expect(
        await s.a.threads.copy({ fromThreadId: 'thread', toThreadId: 'copy', userId: 'user', now: T0 }),
      ).toBeNull();
      expect(
        await s.a.threads.copy({ fromThreadId: 'nowhere', toThreadId: 'new', userId: 'user', now: T0 }),
      ).toBeNull();
      expect(await s.picture('copy')).toEqual(before);
    });
  });
}
