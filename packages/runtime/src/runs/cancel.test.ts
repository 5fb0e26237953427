import { MemoryDatabase } from '@reindeer/database';
import { deferred, flush, testSurroundings, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { collect, gated, human, messagesOf, USER, world } from '../testing/world.ts';

describe('cancel', () => {
  test('ends a run as interrupted; the first action stays', verifies('RL-12'), async () => {
    const g = gated();
    const w = world({ script: g.script });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    expect(await w.cancel(run, 'interrupt')).toMatchObject({ outcome: 'accepted' });
    await w.cancel(run, 'rollback');
    expect(await w.ended(run)).toMatchObject({
      status: 'interrupted',
      cancelAction: 'interrupt',
      error: 'Cancelled by user',
    });
    expect(await messagesOf(w)).toEqual(['hello']);
    await w.runtime.stop();
  });

  test('accepted and stopped are two answers: wait returns when the tool has ended', async () => {
    const body = deferred<string>();
    const started = deferred();
    const w = world({
      script: {
        model: () => ({ text: 'run it', calls: [{ name: 'bash' }, { name: 'second' }] }),
        tool: ({ name }) => {
          if (name === 'bash') started.resolve();
          return body.promise;
        },
      },
    });
    await w.runtime.start();
    const run = await w.admitted();
    await started.promise;
    expect(await w.cancel(run, 'interrupt')).toMatchObject({
      outcome: 'accepted',
      stopped: false,
      stillRunning: ['bash', 'second'],
    });
    let answer: unknown = null;
    const waiting = w.cancel(run, 'interrupt', true).then((result) => {
      answer = result;
    });
    await flush();
    expect(answer).toBeNull();
    body.resolve('ended');
    await waiting;
    expect(answer).toMatchObject({
      outcome: 'accepted',
      stopped: true,
      stillRunning: [],
      run: { status: 'interrupted' },
    });
    await w.runtime.stop();
  });

  test('waiting for a tool that never ends is bounded, and says what still runs', async () => {
    const started = deferred();
    const w = world({
      settings: { stopWaitMs: 20_000, cancelWaitMs: 5_000 },
      script: {
        model: () => ({ text: '', calls: [{ name: 'hang' }] }),
        tool: () => {
          started.resolve();
          return new Promise(() => undefined);
        },
      },
    });
    await w.runtime.start();
    const run = await w.admitted();
    await started.promise;
    const waiting = w.cancel(run, 'interrupt', true);
    await w.surroundings.clock.advance(5_000);
    expect(await waiting).toMatchObject({ outcome: 'accepted', stopped: false, stillRunning: ['hang'] });
    await w.surroundings.clock.advance(20_000);
    expect(await w.ended(run)).toMatchObject({ status: 'interrupted', acknowledged: true });
    await w.runtime.stop();
  });

  test('after a cancel no tool starts, not even one that was about to', async () => {
    const gate = deferred();
    const reached = deferred();
    const effects: string[] = [];
    const w = world({
      script: {
        model: async (messages) => {
          if (messages.length > 1) return { text: 'never' };
          reached.resolve();
          await gate.promise;
          return { text: '', calls: [{ name: 'bash' }] };
        },
        tool: async ({ name }) => {
          effects.push(name);
          return name;
        },
      },
    });
    await w.runtime.start();
    const run = await w.admitted();
    await reached.promise;
    await w.cancel(run);
    gate.resolve();
    expect(await w.ended(run)).toMatchObject({ status: 'interrupted' });
    expect(effects).toEqual([]);
    await w.runtime.stop();
  });

  test('recorded before the terminal write it wins; recorded after, it is too late', verifies('RL-14'), async () => {
    const w = world();
    await w.runtime.start();
    const end = w.surroundings.probe.hold('run.before-finalize');
    const run = await w.admitted();
    await end.reached;
    // The graph has succeeded already; another process records the cancel in the row alone.
    await w.stores.runs.requestCancel({ runId: run.runId, action: 'interrupt', now: w.surroundings.clock.now() });
    end.release();
    expect(await w.ended(run)).toMatchObject({ status: 'interrupted' });
    const later = await w.admitted({ threadId: 'other' });
    await w.ended(later);
    expect(await w.cancel(later)).toMatchObject({ outcome: 'terminal', run: { status: 'success' } });
    await w.runtime.stop();
  });

  test(
    'of a cancelled run is a success, of an unknown run or another thread not found',
    verifies('RL-15'),
    async () => {
      const g = gated();
      const w = world({ script: g.script });
      await w.runtime.start();
      const run = await w.admitted();
      await g.asked;
      await w.cancel(run, 'interrupt', true);
      expect(await w.cancel(run)).toMatchObject({ outcome: 'accepted', stopped: true });
      expect(await w.cancel({ ...run, threadId: 'other' })).toEqual({ outcome: 'not_found' });
      expect(await w.cancel({ ...run, userId: 'eve' })).toEqual({ outcome: 'not_found' });
      expect(await w.cancel({ ...run, runId: 'nothing' })).toEqual({ outcome: 'not_found' });
      await w.runtime.stop();
    },
  );

  test('a run of this process is stopped even when the intent cannot be recorded', verifies('RL-25'), async () => {
    const g = gated();
    const w = world({
      script: g.script,
      stores: (stores) => withFaults(stores, ({ method }) => (method === 'requestCancel' ? 'fail-before' : null)),
    });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    const answer = w.cancel(run, 'interrupt', true);
    await w.surroundings.clock.advance(200);
    expect(await answer).toMatchObject({ outcome: 'accepted', stopped: true, run: { status: 'interrupted' } });
    await w.runtime.stop();
  });

  test('a store that does not answer keeps no run of this process from being stopped', verifies('RL-25'), async () => {
    const held = deferred();
    const g = gated();
    const w = world({
      script: g.script,
      stores: (stores) =>
        withFaults(stores, ({ method }) => (method === 'requestCancel' ? { delayBefore: held.promise } : null)),
    });
    await w.runtime.start();
    const run = await w.admitted();
    await g.asked;
    const answer = w.cancel(run);
    await w.surroundings.clock.advance(999);
    expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'running' });
    await w.surroundings.clock.advance(1);
    expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'interrupted', acknowledged: true });
    held.resolve();
    expect(await answer).toMatchObject({ outcome: 'accepted' });
    await w.runtime.stop();
  });

  test('a store that hangs holds a cancel up to its bound, and not beyond the stop', async () => {
    for (const method of ['get', 'requestCancel']) {
      const w = world({
        settings: { cancelWaitMs: 5_000 },
        stores: (stores) =>
          withFaults(stores, (call) => (call.method === method ? { delayBefore: new Promise(() => undefined) } : null)),
      });
      await w.runtime.start();
      const elsewhere = await w.admitted();
      await w.surroundings.clock.advance(10);
      const first = w.cancel(elsewhere).catch((error: unknown) => error);
      await w.surroundings.clock.advance(5_000);
      expect(await first).toMatchObject({ code: 'store_unavailable' });
      const second = w.cancel(elsewhere).catch((error: unknown) => error);
      await flush();
      await w.runtime.stop();
      expect(await second).toMatchObject({ code: 'shutting_down' });
      expect(w.surroundings.clock.sleeping).toBe(0);
    }
  });

  test('neither recorded nor ended: nobody says that the run has stopped, since it starts again', async () => {
    for (const wait of [false, true]) {
      let down = true;
      let calls = 0;
      const called = deferred();
      const again = deferred();
      const w = world({
        settings: { maxAttempts: 9 },
        script: {
          model: async (_messages, context) => {
            calls += 1;
            (calls === 1 ? called : again).resolve();
            if (calls > 1) return { text: 'went on' };
            return new Promise((_, reject) => {
              context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
            });
          },
        },
        stores: (stores) =>
          withFaults(stores, ({ method }) =>
            down && (method === 'requestCancel' || method === 'finalize') ? 'fail-before' : null,
          ),
      });
      await w.runtime.start();
      const run = await w.admitted();
      await called.promise;
      const answer = w.cancel(run, 'interrupt', wait).catch((error: unknown) => error);
      await w.surroundings.clock.advance(10_000);
      expect(await answer).toMatchObject({ code: 'store_unavailable', retryable: true });
      down = false;
      await w.surroundings.clock.advance(20_000);
      await again.promise;
      expect(await w.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
      await w.runtime.stop();
    }
  });

  test(
    'a rollback whose intent cannot be stored undoes nothing: whoever takes the run over goes on from its own head',
    verifies('RL-25', 'RB-01'),
    async () => {
      const called = deferred();
      const script = {
        model: async (messages: readonly unknown[], context: { readonly signal: AbortSignal }) => {
          if (messages.length === 1) return { text: 'first answer' };
          called.resolve();
          return new Promise<never>((_, reject) => {
            context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
          });
        },
      };
      let down = true;
      const undone: string[] = [];
      const w = world({
        script,
        stores: (stores) =>
          withFaults(stores, ({ method }) => {
            if (method === 'rollback') undone.push(method);
            return down && method === 'requestCancel' ? 'fail-before' : null;
          }),
      });
      await w.runtime.start();
      await w.ended(await w.admitted());
      const run = await w.admitted({ request: { input: { messages: [human('again')] } } });
      await called.promise;
      const answer = w.cancel(run, 'rollback', true).catch((error: unknown) => error);
      await w.surroundings.clock.advance(10_000);
      expect(await answer).toMatchObject({ code: 'store_unavailable' });
      expect(undone).toEqual([]);
      // Asked again when the store is there, it ends the run, and only then is anything undone.
      down = false;
      const second = w.cancel(run, 'rollback', true);
      await w.surroundings.clock.advance(30_000);
      expect(await second).toMatchObject({ outcome: 'accepted' });
      expect(await w.stores.runs.get(run.runId)).toMatchObject({ acknowledged: true, cancelAction: 'rollback' });
      await w.runtime.stop();
    },
  );

  test('recorded late, it lasts: the end that could not be written is written by recovery', async () => {
    let down = true;
    let calls = 0;
    const called = deferred();
    const w = world({
      script: {
        model: async (_messages, context) => {
          calls += 1;
          called.resolve();
          return new Promise((_, reject) => {
            context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
          });
        },
      },
      stores: (stores) =>
        withFaults(stores, ({ method, count }) =>
          down && ((method === 'requestCancel' && count < 4) || method === 'finalize') ? 'fail-before' : null,
        ),
    });
    await w.runtime.start();
    const run = await w.admitted();
    await called.promise;
    const answer = w.cancel(run, 'interrupt', true);
    const short = w.cancel(run);
    await w.surroundings.clock.advance(5_000);
    expect(await short).toMatchObject({ outcome: 'accepted', stopped: false });
    expect(w.runtime.stats().held).toBe(0);
    down = false;
    await w.surroundings.clock.advance(15_000);
    expect(await answer).toMatchObject({ outcome: 'accepted', stopped: true, run: { status: 'interrupted' } });
    expect(calls).toBe(1);
    await w.runtime.stop();
  });

  test('waiting for a run of another process ends when this one stops', async () => {
    const g = gated();
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const a = world({ script: g.script, database, settings: { instanceId: 'a' } });
    const { clock } = a.surroundings;
    const b = world({ database, clock, seed: 2, settings: { instanceId: 'b' } });
    await a.runtime.start();
    const run = await a.admitted();
    await g.asked;
    const waiting = b.cancel(run, 'interrupt', true);
    await flush();
    await b.runtime.stop();
    expect(await waiting).toMatchObject({ outcome: 'accepted', stopped: false });
    expect(await a.stores.runs.get(run.runId)).toMatchObject({ cancelAction: 'interrupt' });
    await clock.advance(4_000);
    expect(await a.ended(run)).toMatchObject({ status: 'interrupted' });
    await a.runtime.stop();
    expect(clock.sleeping).toBe(0);
  });

  test('from another process it reaches the holder with its next beat', verifies('RL-13'), async () => {
    const g = gated();
    const database = new MemoryDatabase(testSurroundings({ seed: 7 }).random);
    const a = world({ script: g.script, database, settings: { instanceId: 'a' } });
    const { clock } = a.surroundings;
    const b = world({ database, clock, seed: 2, settings: { instanceId: 'b' } });
    await a.runtime.start();
    const run = await a.admitted();
    await g.asked;
    const waiting = b.cancel(run, 'rollback', true);
    await clock.advance(4_500);
    expect(await waiting).toMatchObject({
      outcome: 'accepted',
      stopped: true,
      run: { status: 'error', error: 'Rolled back by user' },
    });
    await a.runtime.stop();
  });

  test(
    'a cancel and a start that race never leave a worker on a cancelled row, nor a pending row',
    verifies('RA-31'),
    async () => {
      for (const point of ['run.attached', 'run.before-start']) {
        const w = world();
        await w.runtime.start();
        const gate = w.surroundings.probe.hold(point);
        const run = await w.admitted();
        await gate.reached;
        await w.stores.runs.requestCancel({ runId: run.runId, action: 'rollback', now: w.surroundings.clock.now() });
        gate.release();
        expect(await w.ended(run)).toMatchObject({ status: 'interrupted', attempt: 0, acknowledged: true });
        expect(w.surroundings.logger.lines.filter(({ level }) => level === 'error')).toEqual([]);
        await w.runtime.stop();
      }
    },
  );

  test(
    'a client that leaves cancels only a run that asked for it, and only when nobody else reads',
    verifies('RS-16'),
    async () => {
      const g = gated();
      const w = world({ script: g.script });
      await w.runtime.start();
      const run = await w.admitted({ onDisconnect: 'cancel' });
      await g.asked;
      const other = new AbortController();
      const reading = collect(w.read(run, { signal: other.signal }));
      await flush();
      await w.runtime.runs.disconnected(run);
      expect(await w.stores.runs.get(run.runId)).toMatchObject({ cancelAction: null });
      other.abort();
      await reading;
      await w.runtime.runs.disconnected(run);
      expect(await w.ended(run)).toMatchObject({ status: 'interrupted' });
      await w.runtime.runs.disconnected(run);
      const stays = gated();
      const w2 = world({ script: stays.script });
      await w2.runtime.start();
      const kept = await w2.admitted({ onDisconnect: 'continue' });
      await stays.asked;
      await w2.runtime.runs.disconnected(kept);
      stays.answer.resolve('done');
      expect(await w2.ended(kept)).toMatchObject({ status: 'success' });
      await w.runtime.stop();
      await w2.runtime.stop();
    },
  );

  test('runs and reservations of others are invisible', verifies('RA-28'), async () => {
    const w = world();
    await w.runtime.start();
    const run = await w.admitted();
    await w.ended(run);
    expect(await w.runtime.runs.get({ ...run, userId: 'eve' })).toBeNull();
    expect(await w.runtime.runs.remove({ ...run, userId: 'eve' })).toBe('not_found');
    expect(await w.runtime.runs.remove(run)).toBe('removed');
    expect(
      await w.runtime.runs.list({ threadId: run.threadId, userId: USER, status: null, limit: 5, offset: 0 }),
    ).toEqual([]);
    await w.runtime.stop();
  });
});
