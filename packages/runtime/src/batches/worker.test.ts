import { ReindeerError } from '@reindeer/protocol';
import { deferred, flush, gated, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { address, BatchScene, bad, type Check, good, HeldExecutor, LEASE } from '../testing/batch-scene.ts';

describe('an attempt', () => {
  test('what is not admitted counts no attempt and waits a little', verifies('BT-05'), async () => {
    const s = new BatchScene();
    await s.create({ maxAttempts: 1 });
    let refusals = 0;
    const executor = new HeldExecutor();
    const { worker } = s.worker({
      executor: {
        prepare: async (work) => {
          refusals += 1;
          if (refusals <= 4) throw new ReindeerError('over_capacity', 'No room.', { retryable: true });
          return executor.prepare(work);
        },
      },
    });
    executor.auto = () => good();
    await worker.start();
    await s.clock.advance(1_000);
    expect(await s.item()).toMatchObject({ status: 'queued', attempt: 0, error: 'No room.' });
    await s.clock.advance(20_000);
    expect(await s.item()).toMatchObject({ status: 'succeeded', attempt: 1 });
    await Promise.all([worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
  });

  test('a failed attempt is repeated after a growing pause, up to its limit', async () => {
    const s = new BatchScene();
    await s.create({ maxAttempts: 3 });
    const { worker, executor } = s.worker({ settings: { backoffMs: 4_000 } });
    const at: number[] = [];
    executor.auto = () => {
      at.push(s.clock.now());
      return bad();
    };
    await worker.start();
    await s.clock.advance(60_000);
    expect(await s.item()).toMatchObject({ status: 'failed', attempt: 3, error: 'broken' });
    const pauses = at.slice(1).map((time, n) => time - (at[n] ?? 0));
    expect(pauses[0]).toBeGreaterThanOrEqual(2_000);
    expect(pauses[1]).toBeGreaterThanOrEqual(4_000);
    expect(executor.children.every((child) => child.forgotten)).toBe(true);
    await Promise.all([worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
  });

  test('a start that is refused begins no child', verifies('BT-07'), async () => {
    const s = new BatchScene();
    await s.create();
    const { worker, executor, surroundings } = s.worker();
    const gate = surroundings.probe.hold('batch.before-start');
    await worker.pass();
    await gate.reached;
    await s.stores.batches.cancel({ ...address, now: s.clock.now() });
    gate.release();
    await flush();
    expect(executor.children).toHaveLength(1);
    expect(executor.child(0).begun.settled).toBe(false);
    expect((await s.item()).status).toBe('cancelled');
    expect(worker.size).toBe(0);
  });

  test('after a lost lease the child is stopped and nothing is written', verifies('BT-25', 'BT-08'), async () => {
    const s = new BatchScene();
    await s.create();
    const first = s.worker();
    await first.worker.pass();
    await first.executor.child(0).begun.promise;
    s.clock.skip(LEASE + 1);
    const second = s.worker();
    await second.worker.pass();
    await second.executor.child(0).begun.promise;
    // The first hears of it with its next beat, or its deadline, and has finished meanwhile.
    first.executor.child(0).ended.resolve(good('of the first'));
    await flush();
    expect(await s.item()).toMatchObject({ status: 'running', attempt: 2 });
    second.executor.child(0).ended.resolve(good('of the second'));
    await flush();
    expect(await s.item()).toMatchObject({ status: 'succeeded', result: 'of the second' });
  });

  test(
    'the lease is renewed while a stopped child drains, and left alone after the bound',
    verifies('BT-23', 'BT-22'),
    async () => {
      const s = new BatchScene();
      await s.create();
      const { worker, executor, surroundings } = s.worker({ settings: { drainMs: 30_000 } });
      await worker.start();
      await s.clock.advance(10);
      await executor.child(0).begun.promise;
      const stopped = worker.stop({ drainMs: 0, hardMs: 120_000 });
      await s.clock.advance(25_000);
      expect(executor.child(0).work.signal.aborted).toBe(true);
      const peer = (now: number) =>
        s.stores.batches.claim({ owner: 'peer', leaseMs: LEASE, limit: 1, exclude: [], now });
      expect((await peer(s.clock.now())).items).toEqual([]);
      await s.clock.advance(6_000);
      expect(surroundings.logger.lines.some(({ message }) => message.includes('goes on after'))).toBe(true);
      expect(await s.item()).toMatchObject({ status: 'running', attempt: 1 });
      // Neither renewed nor released: it falls to a peer when the last lease is over.
      const [item] = (await peer(s.clock.now() + LEASE)).items;
      expect(item?.attempt).toBe(2);
      executor.child(0).ended.resolve(good());
      await s.clock.advance(120_000);
      expect(await stopped).toEqual([]);
      expect((await s.item()).status).toBe('leased');
    },
  );

  test('a stop lets children end, then gives their items back at once', verifies('BT-19', 'BT-20'), async () => {
    const s = new BatchScene();
    await s.create({ count: 3 });
    const { worker, executor } = s.worker();
    await worker.start();
    await s.clock.advance(10);
    expect(executor.children).toHaveLength(3);
    for (const child of executor.children)
      child.work.signal.addEventListener('abort', () => child.ended.resolve(bad('stopped')));
    const stop = [worker.stop({ drainMs: 5_000, hardMs: 10_000 }), worker.stop({ drainMs: 0, hardMs: 0 })];
    executor.child(1).ended.resolve(good());
    await s.clock.advance(4_000);
    // Neither the second call nor anything else shortens the drain.
    expect(executor.children.map((child) => child.work.signal.aborted)).toEqual([false, false, false]);
    await s.clock.advance(2_000);
    expect(await Promise.all(stop)).toEqual([[], []]);
    expect(await s.items()).toMatchObject([
      { status: 'queued', attempt: 0 },
      { status: 'succeeded', attempt: 1 },
      { status: 'queued', attempt: 0 },
    ]);
    expect(s.clock.sleeping).toBe(0);
  });

  test('a store that cannot answer at the end is asked again, and the item ends once', verifies('BT-21'), async () => {
    const s = new BatchScene();
    await s.create();
    const store = gated(s.stores.batches, ['finish']);
    const { worker, executor } = s.worker({ store: store.target });
    await worker.start();
    await s.clock.advance(10);
    store.break(new ReindeerError('store_unavailable', 'Away.', { retryable: true }), 'finish');
    executor.child(0).ended.resolve(good());
    await s.clock.advance(20_000);
    expect(await s.item()).toMatchObject({ status: 'running', attempt: 1 });
    store.heal();
    await s.clock.advance(3_000);
    expect(await s.item()).toMatchObject({ status: 'succeeded', attempt: 1 });
    expect(executor.children).toHaveLength(1);
    await Promise.all([worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
  });

  test(
    'a start that cannot be stored for good begins nothing, and tells what was prepared',
    verifies('BT-21'),
    async () => {
      const s = new BatchScene();
      await s.create();
      const store = gated(s.stores.batches, ['start']);
      const { worker, executor } = s.worker({ store: store.target });
      store.break(new ReindeerError('internal', 'Broken.'), 'start');
      await worker.start();
      await s.clock.advance(10);
      const { work, begun } = executor.child(0);
      expect(work.signal.aborted).toBe(true);
      expect(await Promise.race([begun.promise.then(() => 'begun'), flush().then(() => 'never')])).toBe('never');
      // Its right stands until the end is written: then others may try.
      expect(await s.item()).toMatchObject({ status: 'queued', attempt: 1, error: 'Broken.' });
      await Promise.all([worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
    },
  );

  test(
    'a check is advice: the lease is renewed while it runs, and whatever it says the item has succeeded',
    verifies('BT-28'),
    async () => {
      const s = new BatchScene();
      await s.create({ items: [{ key: 'k', prompt: 'p', acceptance: 'It rhymes.' }], maxAttempts: 3 });
      const { worker, executor } = s.worker();
      const checking = deferred<Awaited<ReturnType<Check>>>();
      const asked: string[] = [];
      executor.check = (result) => {
        asked.push(result);
        return checking.promise;
      };
      executor.auto = () => good();
      await worker.start();
      // Far beyond its lease, which only renewals can have carried over: no peer gets the item.
      await s.clock.advance(5 * LEASE);
      expect(asked).toEqual(['correct source result']);
      expect(await s.item()).toMatchObject({ status: 'running', attempt: 1 });
      const peer = { owner: 'peer', leaseMs: LEASE, limit: 1, exclude: [], now: s.clock.now() };
      expect((await s.stores.batches.claim(peer)).items).toEqual([]);
      const verdict = { accepted: false, reason: 'It does not rhyme.' };
      checking.resolve({ verdict, usage: { inputTokens: 3, outputTokens: 4 } });
      await s.clock.advance(60_000);
      expect(await s.item()).toMatchObject({
        status: 'succeeded',
        attempt: 1,
        result: 'correct source result',
        verdict,
        usage: { inputTokens: 3, outputTokens: 4 },
      });
      expect(executor.children).toHaveLength(1);
      await Promise.all([worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
    },
  );

  test('a check that breaks, or is not over when the server stops, leaves no verdict', verifies('BT-28'), async () => {
    const s = new BatchScene();
    const items = ['broken', 'slow', 'not asked for'].map((key) => ({ key, prompt: key, acceptance: 'Good.' }));
    await s.create({
      items: items.map((item, n) => (n === 2 ? { key: item.key, prompt: item.prompt } : item)),
      maxRunning: 3,
      maxLive: 3,
    });
    const { worker, executor } = s.worker();
    executor.check = (result) => (result === 'broken' ? Promise.reject(new Error('No model.')) : new Promise(() => {}));
    executor.auto = ({ item }) => good(item.prompt);
    await worker.start();
    await s.clock.advance(100);
    expect((await s.items()).map((item) => item.status)).toEqual(['succeeded', 'running', 'succeeded']);
    await Promise.all([worker.stop({ drainMs: 1_000, hardMs: 5_000 }), s.clock.advance(6_000)]);
    for (const item of await s.items()) expect(item).toMatchObject({ status: 'succeeded', attempt: 1, verdict: null });
  });

  test('a claim that was heard of too late is given back', verifies('BT-26'), async () => {
    const s = new BatchScene();
    await s.create();
    const store = gated(s.stores.batches, ['claim']);
    const { worker, executor } = s.worker({ store: store.target });
    const gate = store.hold('claim', 'after');
    const pass = worker.pass();
    await gate.reached;
    s.clock.skip(LEASE);
    gate.open();
    await pass;
    await flush();
    expect(executor.children).toEqual([]);
    expect(await s.item()).toMatchObject({ status: 'queued', attempt: 0 });
  });

  test('what an earlier process of the instance held is free when it comes back', verifies('BT-26'), async () => {
    const s = new BatchScene();
    await s.create({ count: 2 });
    const dead = s.worker({ instanceId: 'one' });
    await dead.worker.pass();
    await flush();
    // It was killed: nothing of it is heard again.
    const next = s.worker({ instanceId: 'one' });
    next.executor.auto = () => good();
    await next.worker.start();
    await s.clock.advance(100);
    expect(await s.items()).toMatchObject([
      { status: 'succeeded', attempt: 2 },
      { status: 'succeeded', attempt: 2 },
    ]);
    await Promise.all([next.worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
  });

  test('never more at once than the process takes, over all batches', async () => {
    const s = new BatchScene();
    await s.create({ batchId: 'one', count: 20 });
    await s.create({ batchId: 'two', count: 20 });
    const { worker, executor } = s.worker({ settings: { maxRunningHere: 4 } });
    await worker.start();
    await s.clock.advance(10);
    expect(executor.children.map((child) => child.work.item.batchId).sort()).toEqual(['one', 'one', 'two', 'two']);
    for (let n = 0; n < 40; n += 1) {
      executor.child(n).ended.resolve(good());
      await s.clock.advance(5);
      expect(worker.size).toBeLessThanOrEqual(4);
    }
    expect((await s.items('one')).every((item) => item.status === 'succeeded')).toBe(true);
    expect((await s.items('two')).every((item) => item.status === 'succeeded')).toBe(true);
    await Promise.all([worker.stop({ drainMs: 0, hardMs: 0 }), s.clock.advance(1_000)]);
  });

  test('a long result is bounded in its row', verifies('BT-15'), async () => {
    const s = new BatchScene();
    await s.create();
    const { worker, executor } = s.worker({ settings: { maxResultChars: 100, previewChars: 10 } });
    executor.auto = () => good('😀'.repeat(80));
    await worker.pass();
    await flush();
    const item = await s.item();
    expect(item).toMatchObject({ status: 'succeeded', resultTruncated: true });
    expect(item.result).toBe('😀'.repeat(50));
    expect(item.resultPreview).toBe('😀'.repeat(5));
  });
});
