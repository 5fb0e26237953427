import { deferred, faultOnce, flush, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { collect, human, messagesOf, texts, USER, world } from '../testing/world.ts';

/** First turn answers; in the second one a tool waits for the test. */
function twoTurns() {
  const tool = deferred<string>();
  const started = deferred();
  return {
    tool,
    started: started.promise,
    script: {
      model: (messages: readonly unknown[]) =>
        messages.length === 1
          ? { text: 'first answer' }
          : messages.length === 3
            ? { text: 'working', calls: [{ name: 'bash' }] }
            : { text: 'end' },
      tool: () => {
        started.resolve();
        return tool.promise;
      },
    },
  };
}
const again = { request: { input: { messages: [human('again')] } } };

describe('rollback', () => {
  test(
    'a replaced run keeps the right to roll back, beyond its first lease; then it is acknowledged, once',
    verifies('SEED-003-01', 'RB-01', 'RB-03', 'RT-22'),
    async () => {
      const s = twoTurns();
      const finished: string[] = [];
      const w = world({
        script: s.script,
        hooks: { onFinished: (run) => void finished.push(`${run.runId} ${run.status}`) },
      });
      const { clock, probe } = w.surroundings;
      await w.runtime.start();
      await w.ended(await w.admitted());
      const before = await w.runtime.threads.state({
        threadId: 'thread-1',
        userId: USER,
        checkpointId: null,
        subgraphs: false,
      });
      const second = await w.admitted(again);
      const events = collect(w.read(second));
      await s.started;
      const rollback = probe.hold('run.before-rollback');
      const third = await w.admitted({ ...again, multitaskStrategy: 'rollback' });
      expect(await w.stores.runs.get(second.runId)).toMatchObject({
        status: 'interrupted',
        error: 'Cancelled by newer run',
        acknowledged: false,
      });
      s.tool.resolve('too late');
      await rollback.reached;
      // Far beyond the lease that it was admitted with, it still holds the row.
      await clock.advance(60_000);
      const peer = await w.stores.runs.claimOrphans({
        owner: 'peer',
        tokens: ['p'],
        leaseExpiresAt: clock.now() + 1,
        graceMs: 3_000,
        deadOwners: [],
        skipRunIds: [],
        now: clock.now(),
      });
      expect(peer).toEqual([]);
      expect(w.runtime.stats().held).toBe(2);
      expect(await w.stores.runs.get(third.runId)).toMatchObject({ status: 'pending' });
      rollback.release();
      expect(await w.ended(second)).toMatchObject({
        status: 'error',
        error: 'Rolled back by user',
        acknowledged: true,
        owner: null,
      });
      const read = await events;
      expect(read.filter(({ event }) => event === 'end')).toHaveLength(1);
      expect(texts(read)).toEqual(['hello', 'first answer']);
      const end = await w.ended(third);
      expect(end).toMatchObject({ status: 'success', checkpointBefore: before?.checkpoint.checkpoint_id });
      expect(finished.filter((line) => line.startsWith(second.runId))).toEqual([`${second.runId} error`]);
      await w.runtime.stop();
    },
  );

  test(
    'a replaced run with strategy interrupt stays interrupted and keeps its work',
    verifies('SEED-003-01'),
    async () => {
      const s = twoTurns();
      const w = world({ script: s.script });
      await w.runtime.start();
      await w.ended(await w.admitted());
      const second = await w.admitted(again);
      await s.started;
      const third = await w.admitted({ ...again, multitaskStrategy: 'interrupt' });
      s.tool.resolve('late');
      expect(await w.ended(second)).toMatchObject({ status: 'interrupted', error: 'Cancelled by newer run' });
      await w.ended(third);
      expect((await messagesOf(w)).slice(0, 4)).toEqual(['hello', 'first answer', 'again', 'working']);
      await w.runtime.stop();
    },
  );

  test(
    'a fenced worker begins no rollback, although one was asked for',
    verifies('SEED-003-02', 'RL-08', 'RL-27', 'RT-21'),
    async () => {
      const s = twoTurns();
      const finished: string[] = [];
      const w = world({ script: s.script, hooks: { onFinished: (run) => void finished.push(run.runId) } });
      const { clock } = w.surroundings;
      await w.runtime.start();
      await w.ended(await w.admitted());
      const second = await w.admitted(again);
      await s.started;
      await w.cancel(second, 'rollback');
      // A peer takes the row before the holder gets to its rollback.
      const [claimed] = await w.stores.runs.claimOrphans({
        owner: 'peer',
        tokens: ['peer-token'],
        leaseExpiresAt: clock.now() + 12_000,
        graceMs: 0,
        deadOwners: ['local'],
        skipRunIds: [],
        now: clock.now(),
      });
      expect(claimed?.run.runId).toBe(second.runId);
      const row = await w.stores.runs.get(second.runId);
      const log = await w.stores.log.read({
        threadId: 'thread-1',
        runId: null,
        afterSeq: 0,
        limit: 500,
        maxBytes: 1e9,
      });
      s.tool.resolve('late');
      await flush();
      await clock.advance(10_000);
      expect(await w.stores.runs.get(second.runId)).toEqual(row);
      expect(
        (await w.stores.log.read({ threadId: 'thread-1', runId: null, afterSeq: 0, limit: 500, maxBytes: 1e9 })).head,
      ).toBe(log.head);
      expect(await messagesOf(w)).toEqual(['hello', 'first answer', 'again', 'working']);
      expect(finished).not.toContain(second.runId);
      expect(w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
      await w.runtime.stop();
    },
  );

  test('without a checkpoint before the run all checkpoints of the thread go', verifies('RB-02'), async () => {
    const started = deferred();
    const tool = deferred<string>();
    const w = world({
      script: {
        model: () => ({ text: 'working', calls: [{ name: 'bash' }] }),
        tool: () => {
          started.resolve();
          return tool.promise;
        },
      },
    });
    await w.runtime.start();
    const run = await w.admitted();
    await started.promise;
    await w.cancel(run, 'rollback');
    tool.resolve('late');
    expect(await w.ended(run)).toMatchObject({ status: 'error', error: 'Rolled back by user', checkpointBefore: '' });
    expect(await w.stores.checkpoints.load({ threadId: 'thread-1', ns: '', checkpointId: null })).toBeNull();
    const facts = (
      await w.stores.log.read({ threadId: 'thread-1', runId: run.runId, afterSeq: 0, limit: 500, maxBytes: 1e9 })
    ).facts;
    const alive = new Set<string>();
    for (const { body } of facts) {
      if (body.kind === 'message' && 'type' in body.message) alive.add(body.message.id ?? '');
      if (body.kind === 'message-removed') alive.delete(body.messageId);
    }
    expect([...alive]).toEqual([]);
    await w.runtime.stop();
  });

  test('when the state before could not be captured nothing is deleted', verifies('RB-02'), async () => {
    const s = twoTurns();
    let broken = false;
    const w = world({
      script: s.script,
      stores: (stores) =>
        withFaults(stores, ({ port, method }) =>
          broken && port === 'checkpoints' && method === 'load' ? 'fail-before' : null,
        ),
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    const before = w.surroundings.probe.hold('run.before-start');
    broken = true;
    const second = await w.admitted(again);
    await w.surroundings.clock.advance(1_000);
    await before.reached;
    broken = false;
    before.release();
    await s.started;
    await w.cancel(second, 'rollback');
    s.tool.resolve('late');
    expect(await w.ended(second)).toMatchObject({ status: 'interrupted', checkpointBefore: null });
    expect((await messagesOf(w)).slice(0, 4)).toEqual(['hello', 'first answer', 'again', 'working']);
    await w.runtime.stop();
  });

  test(
    'a cancelled run that began at an older checkpoint gives back the head that was there before it',
    verifies('RB-09', 'RB-01'),
    async () => {
      const s = twoTurns();
      const w = world({ script: s.script });
      await w.runtime.start();
      await w.ended(await w.admitted());
      const own = { threadId: 'thread-1', userId: USER };
      const older = await w.runtime.threads.state({ ...own, checkpointId: null, subgraphs: false });
      const values = { messages: [human('added later', 'later')] };
      await w.runtime.threads.updateState({ ...own, values, checkpointId: null, asNode: 'tools' });
      const before = await w.runtime.threads.state({ ...own, checkpointId: null, subgraphs: false });
      expect(before?.checkpoint).not.toEqual(older?.checkpoint);
      const checkpointId = older?.checkpoint.checkpoint_id ?? '';
      const fork = await w.admitted({ request: { ...again.request, checkpointId } });
      await s.started;
      // It has written: the head is its own now, and without what was added later.
      expect(await messagesOf(w)).not.toContain('added later');
      await w.cancel(fork, 'rollback');
      s.tool.resolve('late');
      expect(await w.ended(fork)).toMatchObject({
        error: 'Rolled back by user',
        checkpointBefore: before?.checkpoint.checkpoint_id,
      });
      expect(await w.runtime.threads.state({ ...own, checkpointId: null, subgraphs: false })).toEqual(before);
      expect(await messagesOf(w)).toContain('added later');
      await w.runtime.stop();
    },
  );

  test('a run that was cancelled before it started leaves the checkpoints alone', verifies('RB-11'), async () => {
    const w = world();
    await w.runtime.start();
    await w.ended(await w.admitted());
    const gate = w.surroundings.probe.hold('run.before-start');
    const second = await w.admitted(again);
    await gate.reached;
    await w.cancel(second, 'rollback');
    gate.release();
    expect(await w.ended(second)).toMatchObject({ status: 'interrupted', attempt: 0, error: 'Cancelled by user' });
    expect(await messagesOf(w)).toEqual(['hello', 'You said: hello']);
    await w.runtime.stop();
  });

  test('a rollback whose answer is lost is repeated', async () => {
    const s = twoTurns();
    const w = world({
      script: s.script,
      stores: (stores) => withFaults(stores, faultOnce('fail-after', 'checkpoints.rollback')),
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    const second = await w.admitted(again);
    await s.started;
    await w.cancel(second, 'rollback');
    s.tool.resolve('late');
    await flush();
    await w.surroundings.clock.advance(1_000);
    expect(await w.ended(second)).toMatchObject({ status: 'error', error: 'Rolled back by user' });
    expect(await messagesOf(w)).toEqual(['hello', 'first answer']);
    await w.runtime.stop();
  });

  test('a rollback that the store does not answer is no failed one: whoever takes the run over rolls it back', async () => {
    const s = twoTurns();
    let away = false;
    const w = world({
      script: s.script,
      stores: (stores) => withFaults(stores, ({ method }) => (away && method === 'rollback' ? 'fail-before' : null)),
    });
    const { clock } = w.surroundings;
    await w.runtime.start();
    await w.ended(await w.admitted());
    const second = await w.admitted(again);
    await s.started;
    away = true;
    await w.cancel(second, 'rollback');
    s.tool.resolve('late');
    for (let passed = 0; passed < 5; passed += 1) await clock.advance(1_000);
    expect(await w.stores.runs.get(second.runId)).toMatchObject({ acknowledged: false, error: null });
    away = false;
    for (let passed = 0; passed < 20; passed += 1) await clock.advance(1_000);
    expect(await w.ended(second)).toMatchObject({ status: 'error', error: 'Rolled back by user' });
    expect(await messagesOf(w)).toEqual(['hello', 'first answer']);
    await w.runtime.stop();
  });

  test('waits for a checkpoint that is still on its way, which would bring back what it takes back', async () => {
    for (const arrives of [true, false]) {
      const held = deferred();
      const underWay = deferred();
      let late = false;
      const rolledBack: string[] = [];
      const w = world({
        settings: { stopWaitMs: 10_000, cancelWaitMs: 60_000 },
        script: { model: (messages) => ({ text: `answer to ${messages.length}` }) },
        stores: (stores) =>
          withFaults(stores, ({ method }) => {
            if (method === 'rollback') rolledBack.push(late ? 'before' : 'after');
            if (method !== 'put' || !late) return null;
            underWay.resolve();
            return { delayBefore: held.promise };
          }),
      });
      const { clock } = w.surroundings;
      await w.runtime.start();
      await w.ended(await w.admitted());
      const before = await messagesOf(w);
      late = true;
      const second = await w.admitted(again);
      await underWay.promise;
      const cancelled = w.cancel(second, 'rollback', true);
      await clock.advance(arrives ? 9_000 : 11_000);
      // Neither rolled back nor ended while the write may still arrive.
      expect(rolledBack).toEqual([]);
      expect(await w.stores.runs.get(second.runId)).toMatchObject({ acknowledged: false });
      late = false;
      if (arrives) held.resolve();
      // Given up here, it is taken over under a token that refuses the late write.
      await clock.advance(arrives ? 1 : 20_000);
      expect(await cancelled).toMatchObject({
        outcome: 'accepted',
        stopped: true,
        run: { error: 'Rolled back by user' },
      });
      held.resolve();
      await clock.advance(1);
      expect(rolledBack).toEqual(['after']);
      expect(await messagesOf(w)).toEqual(before);
      await w.runtime.stop();
    }
  });
});
