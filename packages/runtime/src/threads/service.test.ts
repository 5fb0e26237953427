import { deferred, faultOnce, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { gated, human, messagesOf, USER, world } from '../testing/world.ts';

const AT = { threadId: 'thread-1', userId: USER };
const head = { ...AT, checkpointId: null, subgraphs: false };
const edit = { ...AT, checkpointId: null, asNode: null };

describe('threads', () => {
  test('create is idempotent, unless asked to raise; another user sees nothing', async () => {
    const w = world();
    const created = await w.runtime.threads.create({ ...AT, metadata: { a: 1 }, ifExists: 'do_nothing' });
    expect(created).toMatchObject({ outcome: 'created', thread: { status: 'idle', metadata: { a: 1 } } });
    expect(await w.runtime.threads.create({ ...AT, metadata: {}, ifExists: 'do_nothing' })).toMatchObject({
      outcome: 'exists',
      thread: { metadata: { a: 1 } },
    });
    expect(await w.runtime.threads.create({ ...AT, metadata: {}, ifExists: 'raise' })).toEqual({ outcome: 'conflict' });
    expect(await w.runtime.threads.create({ ...AT, userId: 'eve', metadata: {}, ifExists: 'do_nothing' })).toEqual({
      outcome: 'not_found',
    });
    const eve = { ...AT, userId: 'eve' };
    expect(await w.runtime.threads.get(eve)).toBeNull();
    expect(await w.runtime.threads.copy(eve)).toBeNull();
    expect(await w.runtime.threads.delete(eve)).toBe('not_found');
    expect(await w.runtime.threads.update({ ...eve, metadata: { a: 2 } })).toBeNull();
    expect(await w.runtime.threads.state({ ...head, userId: 'eve' })).toBeNull();
    expect(await w.runtime.threads.history({ ...AT, userId: 'eve', limit: 5, before: null, metadata: {} })).toBeNull();
    expect(
      await w.runtime.threads.messages({ ...AT, userId: 'eve', runId: null, before: null, after: null, limit: 5 }),
    ).toBeNull();
    expect(await w.runtime.threads.facts({ ...AT, userId: 'eve', runId: null, afterSeq: 0, limit: 5 })).toBeNull();
    expect(await w.runtime.threads.updateState({ ...edit, userId: 'eve', values: { title: 'x' } })).toEqual({
      outcome: 'not_found',
    });
  });

  test('state and history show checkpoints as LangGraph does; limit 0 is empty', verifies('RB-14'), async () => {
    const w = world();
    await w.runtime.start();
    await w.ended(await w.admitted());
    const state = await w.runtime.threads.state(head);
    expect(state).toMatchObject({
      values: {
        messages: [
          { type: 'human', content: 'hello' },
          { type: 'ai', content: 'You said: hello' },
        ],
      },
      next: [],
      checkpoint: { thread_id: 'thread-1', checkpoint_ns: '', checkpoint_id: expect.any(String), checkpoint_map: null },
      parentCheckpoint: { thread_id: 'thread-1' },
      createdAt: expect.any(String),
      tasks: [],
      interrupts: [],
    });
    const history = await w.runtime.threads.history({ ...AT, limit: 10, before: null, metadata: {} });
    expect(history?.map(({ metadata }) => metadata.step)).toEqual([1, 0, -1]);
    const older = await w.runtime.threads.history({
      ...AT,
      limit: 10,
      before: state?.checkpoint.checkpoint_id ?? '',
      metadata: {},
    });
    expect(older).toEqual(history?.slice(1));
    expect(await w.runtime.threads.history({ ...AT, limit: 10, before: null, metadata: { step: 0 } })).toHaveLength(1);
    expect(await w.runtime.threads.history({ ...AT, limit: 0, before: null, metadata: {} })).toEqual([]);
    expect(
      await w.runtime.threads.state({ ...head, checkpointId: history?.[1]?.checkpoint.checkpoint_id ?? '' }),
    ).toMatchObject({ next: ['model'] });
    expect(await w.runtime.threads.state({ ...head, checkpointId: 'nothing' })).toBeNull();
    await w.runtime.stop();
  });

  test(
    'editing the state makes a new checkpoint, refuses unknown fields, and takes the only slot',
    verifies('RA-08', 'RB-06'),
    async () => {
      const g = gated();
      const w = world({
        script: {
          model: (messages, context) => (messages.length < 3 ? { text: 'first' } : g.script.model(messages, context)),
        },
      });
      await w.runtime.start();
      await w.ended(await w.admitted());
      const before = await w.runtime.threads.state(head);
      const result = await w.runtime.threads.updateState({ ...edit, values: { title: 'new' }, asNode: 'model' });
      expect(result).toMatchObject({ outcome: 'updated', checkpoint: { checkpoint_ns: '' } });
      const after = await w.runtime.threads.state(head);
      expect(after).toMatchObject({ values: { title: 'new' }, parentCheckpoint: before?.checkpoint });
      if (result.outcome === 'updated') expect(after?.checkpoint).toEqual(result.checkpoint);
      expect(await w.runtime.threads.updateState({ ...edit, values: { titel: 'x' } })).toMatchObject({
        outcome: 'invalid',
        message: expect.stringContaining('titel'),
      });
      expect(await w.runtime.threads.updateState({ ...edit, values: { title: 'x' }, asNode: 'nowhere' })).toMatchObject(
        { outcome: 'invalid' },
      );
      expect(await w.runtime.threads.updateState({ ...edit, checkpointId: 'nothing', values: { title: 'x' } })).toEqual(
        { outcome: 'not_found' },
      );
      const run = await w.admitted({ request: { input: { messages: [human('again')] } } });
      await g.asked;
      expect(await w.runtime.threads.updateState({ ...edit, values: { title: 'x' } })).toEqual({ outcome: 'busy' });
      expect(await w.runtime.threads.delete(AT)).toBe('busy');
      g.answer.resolve('done');
      await w.ended(run);
      // The slot is free again after each of these.
      expect(
        await w.runtime.threads.updateState({ ...edit, values: { title: 'last' }, asNode: 'model' }),
      ).toMatchObject({ outcome: 'updated' });
      expect(await w.runtime.runs.list({ ...AT, status: null, limit: 10, offset: 0 })).toHaveLength(2);
      await w.runtime.stop();
    },
  );

  test(
    'a change is worked out and written while nobody else can have the thread',
    verifies('RA-08', 'RB-06'),
    async () => {
      const w = world();
      await w.runtime.start();
      await w.ended(await w.admitted());
      const hold = deferred();
      const reached = deferred();
      const changing = w.runtime.threads.changeState({
        ...AT,
        asNode: 'model',
        async change({ values }) {
          reached.resolve();
          await hold.promise;
          return { title: `after ${(values.messages as unknown[]).length}` };
        },
      });
      await reached.promise;
      expect(await w.create()).toMatchObject({ outcome: 'conflict', reason: 'reserved' });
      expect(await w.runtime.threads.updateState({ ...edit, values: { title: 'x' } })).toEqual({ outcome: 'busy' });
      hold.resolve();
      expect(await changing).toMatchObject({ outcome: 'updated' });
      expect((await w.runtime.threads.state(head))?.values.title).toBe('after 2');
      const change = (value: unknown) =>
        w.runtime.threads.changeState({ ...AT, asNode: 'model', change: async () => value });
      expect(await change(null)).toEqual({ outcome: 'unchanged' });
      await expect(
        w.runtime.threads.changeState({
          ...AT,
          asNode: 'model',
          change: async () => {
            throw new Error('no summary');
          },
        }),
      ).rejects.toThrow('no summary');
      expect(
        await w.runtime.threads.changeState({ ...AT, userId: 'eve', asNode: 'model', change: async () => ({}) }),
      ).toEqual({
        outcome: 'not_found',
      });
      // The slot is free again after each of these.
      expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success' });
      await w.runtime.stop();
    },
  );

  test('messages that are edited in stand in the log', async () => {
    const w = world();
    await w.runtime.start();
    await w.ended(await w.admitted());
    await w.runtime.threads.updateState({ ...edit, values: { messages: [human('edited in', 'm')] }, asNode: 'model' });
    const page = await w.runtime.threads.messages({ ...AT, runId: null, before: null, after: null, limit: 10 });
    expect(
      page?.facts.map(({ body }) => body.kind === 'message' && 'type' in body.message && body.message.content),
    ).toEqual(['hello', 'You said: hello', 'edited in']);
    expect(page?.hasMore).toBe(false);
    const newest = await w.runtime.threads.messages({ ...AT, runId: null, before: null, after: null, limit: 2 });
    expect(newest).toMatchObject({ hasMore: true, facts: [{}, { body: { message: { content: 'edited in' } } }] });
    const first = await w.runtime.threads.messages({ ...AT, runId: null, before: null, after: 0, limit: 1 });
    expect(first).toMatchObject({ hasMore: true, facts: [{ body: { message: { content: 'hello' } } }] });
    await w.runtime.stop();
  });

  test('what the host keeps of a thread goes while nobody else can have the thread; when that fails, the thread stays', async () => {
    let broken = true;
    let held: unknown[] = [];
    const w = world({
      hooks: {
        async onThreadDeleting() {
          held = (await w.stores.runs.active(AT.threadId)).map((run) => run.kind);
          if (broken) throw new Error('the files cannot be removed');
        },
      },
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    await expect(w.runtime.threads.delete(AT)).rejects.toThrow('the files cannot be removed');
    expect(held).toEqual(['delete']);
    expect(await w.runtime.threads.get(AT)).not.toBeNull();
    broken = false;
    expect(await w.runtime.threads.delete(AT)).toBe('deleted');
    expect(await w.runtime.threads.get(AT)).toBeNull();
    await w.runtime.stop();
  });

  test('a deleted thread is gone with everything, and the host hears of it', async () => {
    const deleted: unknown[] = [];
    const w = world({
      hooks: {
        onThreadDeleting: (thread) => void deleted.push(['deleting', thread]),
        onThreadDeleted: (thread) => void deleted.push(['deleted', thread]),
      },
    });
    await w.runtime.start();
    const run = await w.admitted();
    await w.ended(run);
    expect(await w.runtime.threads.delete(AT)).toBe('deleted');
    expect(deleted).toEqual([
      ['deleting', AT],
      ['deleted', AT],
    ]);
    expect(await w.runtime.threads.get(AT)).toBeNull();
    expect(await w.stores.runs.get(run.runId)).toBeNull();
    expect(await w.runtime.threads.delete(AT)).toBe('not_found');
    expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success' });
    await w.runtime.stop();
  });

  test('a copy has the state and is another thread', async () => {
    const w = world();
    await w.runtime.start();
    await w.ended(await w.admitted());
    const copy = await w.runtime.threads.copy(AT);
    if (copy === null) throw new Error('not copied');
    expect(await messagesOf(w, copy.threadId)).toEqual(['hello', 'You said: hello']);
    await w.ended(await w.admitted({ threadId: copy.threadId, request: { input: { messages: [human('more')] } } }));
    expect(await messagesOf(w)).toHaveLength(2);
    expect(await messagesOf(w, copy.threadId)).toHaveLength(4);
    await w.runtime.stop();
  });

  test(
    'a reservation that cannot be released is left to its lease; the result stands',
    verifies('RA-24', 'RA-23'),
    async () => {
      const w = world({ stores: (stores) => withFaults(stores, faultOnce('fail-before', 'runs.release')) });
      await w.runtime.start();
      await w.ended(await w.admitted());
      expect(await w.runtime.threads.updateState({ ...edit, values: { title: 'new' }, asNode: 'model' })).toMatchObject(
        { outcome: 'updated' },
      );
      expect(w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
      expect(await w.create()).toMatchObject({ outcome: 'conflict', reason: 'reserved' });
      await w.surroundings.clock.advance(20_000);
      expect(await w.ended(await w.admitted())).toMatchObject({ status: 'success' });
      await w.runtime.stop();
    },
  );

  test('a reservation that lost its right is a conflict, and writes nothing', verifies('RA-25', 'RL-32'), async () => {
    const hold = deferred();
    const reached = deferred();
    const w = world({
      stores: (stores) =>
        withFaults(stores, ({ port, method, count }) => {
          if (port !== 'checkpoints' || method !== 'put' || count !== 4) return null;
          reached.resolve();
          return { delayBefore: hold.promise };
        }),
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    const before = await w.runtime.threads.state(head);
    const editing = expect(
      w.runtime.threads.updateState({ ...edit, values: { title: 'late' }, asNode: 'model' }),
    ).rejects.toMatchObject({ code: 'conflict' });
    await reached.promise;
    const { clock } = w.surroundings;
    await w.stores.runs.claimOrphans({
      owner: 'peer',
      tokens: ['t'],
      leaseExpiresAt: clock.now() + 60_000,
      graceMs: 0,
      deadOwners: ['local'],
      skipRunIds: [],
      now: clock.now(),
    });
    hold.resolve();
    await editing;
    expect((await w.runtime.threads.state(head))?.values).toEqual(before?.values);
    await w.runtime.stop();
  });
});
