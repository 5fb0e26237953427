import { MemoryDatabase } from '@reindeer/database';
import type { Fact, Stores } from '@reindeer/protocol';
import { deferred, faultOnce, flush, testSurroundings, VirtualClock, verifies, withFaults } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import {
  collect,
  gated,
  messagesOf,
  request,
  texts,
  USER,
  type World,
  type WorldOptions,
  world,
} from '../testing/world.ts';

/** Processes on one database and one clock; `kill` cuts a process off its stores, as `kill -9` does. */
function machine() {
  const database = new MemoryDatabase(testSurroundings({ seed: 99 }).random);
  const clock = new VirtualClock();
  let seed = 1;
  const boot = (options: WorldOptions = {}) => {
    let dead = false;
    seed += 1;
    const stores = (inner: Stores) =>
      withFaults(inner, () => (dead ? { delayBefore: new Promise<void>(() => undefined) } : null));
    const w = world({ database, clock, seed, stores, ...options });
    return { w, kill: () => (dead = true) };
  };
  return { clock, boot };
}

async function facts(w: World, runId: string): Promise<readonly Fact[]> {
  return (await w.stores.log.read({ threadId: 'thread-1', runId, afterSeq: 0, limit: 1_000, maxBytes: 1e9 })).facts;
}

const count = (log: readonly Fact[], kind: Fact['body']['kind']) => log.filter(({ body }) => body.kind === kind).length;

/** Two tools side by side: one ends, the other waits. */
function twoTools() {
  const started = deferred();
  const slow = deferred<string>();
  const runs: string[] = [];
  const script: Script = {
    model: (messages) =>
      messages.length === 1 ? { text: 'working', calls: [{ name: 'quick' }, { name: 'slow' }] } : { text: 'all done' },
    tool: async ({ name }) => {
      runs.push(name);
      if (name === 'quick') return 'quick result';
      started.resolve();
      return slow.promise;
    },
  };
  return { script, started: started.promise, slow, runs };
}

describe('a process dies', () => {
  test('the next one goes on at the last checkpoint: finished tools do not run again, the unfinished is reported unknown', async () => {
    const m = machine();
    const s = twoTools();
    const a = m.boot({ script: s.script });
    await a.w.runtime.start();
    const run = await a.w.admitted();
    await s.started;
    await flush();
    a.kill();
    const again: string[] = [];
    const tool = async ({ name }: { name: string }) => `again ${again.push(name)}`;
    const b = m.boot({ script: { ...s.script, tool } });
    expect(await b.w.runtime.start()).toEqual({ recovered: 1 });
    expect(await b.w.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
    expect(s.runs).toEqual(['quick', 'slow']);
    expect(again).toEqual([]);
    expect(await messagesOf(b.w)).toEqual(['hello', 'working', 'quick result', 'unknown outcome', 'all done']);
    const log = await facts(b.w, run.runId);
    // Each message once, although the step was done twice; the dead process's late result changes nothing.
    expect(count(log, 'message')).toBe(5);
    s.slow.resolve('late');
    await flush();
    expect(count(await facts(b.w, run.runId), 'message')).toBe(5);
    expect(log.map(({ seq }) => seq)).toEqual(log.map((_, index) => index + 1));
    await b.w.runtime.stop();
  });

  test('a reader of the new process gets the whole run, each message once', async () => {
    const m = machine();
    const s = twoTools();
    const a = m.boot({ script: s.script });
    await a.w.runtime.start();
    const run = await a.w.admitted();
    await s.started;
    await flush();
    a.kill();
    const b = m.boot({ script: s.script });
    await b.w.runtime.start();
    const events = await collect(b.w.read(run, { modes: ['values', 'updates'] }));
    expect(texts(events)).toEqual(['hello', 'working', 'quick result', 'unknown outcome', 'all done']);
    expect(events.at(-1)?.event).toBe('end');
    await b.w.runtime.stop();
  });

  test('policy error ends the run instead, and the thread is usable', verifies('RL-20'), async () => {
    const m = machine();
    const g = gated();
    const a = m.boot({ script: g.script });
    await a.w.runtime.start();
    const run = await a.w.admitted({ crashPolicy: 'error' });
    await g.asked;
    a.kill();
    const b = m.boot();
    await b.w.runtime.start();
    expect(await b.w.ended(run)).toMatchObject({ status: 'error', stopReason: 'orphan_recovered', attempt: 1 });
    expect(await b.w.ended(await b.w.admitted())).toMatchObject({ status: 'success' });
    await b.w.runtime.stop();
  });

  test('attempts are bounded', async () => {
    const m = machine();
    let run = null;
    for (let life = 1; life <= 3; life += 1) {
      const g = gated();
      const p = m.boot({ script: g.script });
      await p.w.runtime.start();
      run ??= await p.w.admitted();
      await g.asked;
      expect(await p.w.stores.runs.get(run.runId)).toMatchObject({ status: 'running', attempt: life });
      p.kill();
    }
    const last = m.boot();
    await last.w.runtime.start();
    if (run === null) throw new Error('no run');
    expect(await last.w.ended(run)).toMatchObject({
      status: 'error',
      stopReason: 'orphan_recovered',
      attempt: 3,
      error: expect.stringContaining('3 attempts'),
    });
    await last.w.runtime.stop();
  });

  test('a run that never started runs as if nothing had been', async () => {
    const m = machine();
    const a = m.boot();
    await a.w.runtime.start();
    const gate = a.w.surroundings.probe.hold('run.before-start');
    const run = await a.w.admitted();
    await gate.reached;
    a.kill();
    const b = m.boot();
    await b.w.runtime.start();
    expect(await b.w.ended(run)).toMatchObject({ status: 'success', attempt: 1 });
    expect(await messagesOf(b.w)).toEqual(['hello', 'You said: hello']);
    await b.w.runtime.stop();
  });

  test('a run that had finished its graph is only finalized', async () => {
    const m = machine();
    let asked = 0;
    const script: Script = {
      model: () => {
        asked += 1;
        return { text: `answer ${asked}` };
      },
    };
    const a = m.boot({ script });
    await a.w.runtime.start();
    const gate = a.w.surroundings.probe.hold('run.before-finalize');
    const run = await a.w.admitted();
    await gate.reached;
    a.kill();
    const b = m.boot({ script });
    await b.w.runtime.start();
    expect(await b.w.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
    expect(asked).toBe(1);
    expect(await messagesOf(b.w)).toEqual(['hello', 'answer 1']);
    await b.w.runtime.stop();
  });

  test(
    'a superseded run whose holder died is rolled back by the next one, and its replacement runs after it',
    verifies('SEED-003-01', 'GW-07'),
    async () => {
      const m = machine();
      const s = twoTools();
      const a = m.boot({ script: s.script });
      await a.w.runtime.start();
      const first = await a.w.admitted();
      await s.started;
      const gate = a.w.surroundings.probe.hold('run.before-rollback');
      const second = await a.w.admitted({ multitaskStrategy: 'rollback' });
      s.slow.resolve('late');
      await gate.reached;
      a.kill();
      const b = m.boot();
      await b.w.runtime.start();
      await m.clock.advance(5_000);
      expect(await b.w.ended(first)).toMatchObject({ status: 'error', error: 'Rolled back by user' });
      expect(await b.w.ended(second)).toMatchObject({ status: 'success', checkpointBefore: '' });
      expect(await messagesOf(b.w)).toEqual(['hello', 'You said: hello']);
      // The recovered run failed, but it is not the newest: the thread is as the newest left it.
      expect(await b.w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toMatchObject({ status: 'idle' });
      await b.w.runtime.stop();
    },
  );

  test(
    'a peer takes over at the latest lease + grace + one sweep after the last beat, and the old holder writes nothing more',
    verifies('RL-30', 'RL-08', 'ND-07'),
    async () => {
      const m = machine();
      const g = gated();
      const a = m.boot({ script: g.script, settings: { instanceId: 'a' } });
      const b = m.boot({ settings: { instanceId: 'b' } });
      await a.w.runtime.start();
      await b.w.runtime.start();
      const run = await a.w.admitted();
      await g.asked;
      await m.clock.advance(5_000);
      a.kill();
      // The last beat was at 4 s: lease 12 s, grace 3 s, sweep 2 s.
      await m.clock.advance(16_000);
      expect(await b.w.stores.runs.get(run.runId)).toMatchObject({ status: 'success', attempt: 2 });
      const log = await facts(b.w, run.runId);
      g.answer.resolve('late');
      await m.clock.advance(5_000);
      expect(await facts(b.w, run.runId)).toEqual(log);
      await b.w.runtime.stop();
    },
  );

  test(
    'a paused holder that wakes up after the takeover stops itself and changes nothing',
    verifies('RL-06', 'RL-32'),
    async () => {
      const m = machine();
      const tool = deferred<string>();
      const started = deferred();
      const script: Script = {
        model: (messages) =>
          messages.length === 1 ? { text: 'working', calls: [{ name: 'slow' }] } : { text: 'from a' },
        tool: () => {
          started.resolve();
          return tool.promise;
        },
      };
      let paused = false;
      const a = m.boot({
        script,
        // Alive, it would take the run over itself.
        settings: { instanceId: 'a', sweepMs: 1_000_000 },
        stores: (inner) => withFaults(inner, ({ method }) => (paused && method === 'renew' ? 'fail-before' : null)),
      });
      const b = m.boot({ script: { ...script, model: () => ({ text: 'from b' }) }, settings: { instanceId: 'b' } });
      await a.w.runtime.start();
      await b.w.runtime.start();
      const run = await a.w.admitted();
      await started.promise;
      paused = true;
      await m.clock.advance(20_000);
      expect(await b.w.stores.runs.get(run.runId)).toMatchObject({ status: 'success', attempt: 2 });
      const row = await b.w.stores.runs.get(run.runId);
      const log = await facts(b.w, run.runId);
      paused = false;
      tool.resolve('late result of a');
      await m.clock.advance(20_000);
      expect(await b.w.stores.runs.get(run.runId)).toEqual(row);
      expect(await facts(b.w, run.runId)).toEqual(log);
      expect(a.w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
      await a.w.runtime.stop();
      await b.w.runtime.stop();
    },
  );

  test('a reservation of a dead process is released, and is no run', verifies('RL-22'), async () => {
    const m = machine();
    const a = m.boot();
    await a.w.ended(await a.w.admitted());
    const now = m.clock.now();
    await a.w.stores.runs.admit({
      runId: 'r',
      threadId: 'thread-1',
      userId: 'ann',
      assistantId: 'x',
      kind: 'delete',
      multitaskStrategy: 'reject',
      onDisconnect: 'continue',
      crashPolicy: 'error',
      idempotencyKey: null,
      payloadHash: '',
      request: request({}),
      metadata: {},
      createThread: false,
      owner: 'local',
      token: 't',
      leaseExpiresAt: now + 12_000,
      now,
    });
    expect(await a.w.create()).toMatchObject({ outcome: 'conflict', reason: 'reserved' });
    a.kill();
    const b = m.boot();
    await b.w.runtime.start();
    expect(await b.w.stores.runs.get('r')).toBeNull();
    expect(await b.w.ended(await b.w.admitted())).toMatchObject({ status: 'success' });
    await b.w.runtime.stop();
  });
});

describe('answers are lost', () => {
  const methods = ['runs.start', 'runs.finalize', 'checkpoints.load', 'log.append', 'journal.finish', 'journal.begin'];
  test.each(
    methods.flatMap(
      (method) =>
        [
          [method, 'fail-after'],
          [method, 'fail-before'],
        ] as const,
    ),
  )('%s %s: the run ends once, with its result', verifies('GW-22', 'RE-08'), async (method, fault) => {
    const finished: string[] = [];
    const w = world({
      script: {
        model: (messages, context) => {
          context.emit({ note: messages.length });
          return messages.length === 1 ? { text: 'working', calls: [{ name: 'quick' }] } : { text: 'done' };
        },
        tool: async () => 'result',
      },
      stores: (stores) => withFaults(stores, faultOnce(fault, method)),
      hooks: { onFinished: (run) => void finished.push(run.status) },
    });
    await w.runtime.start();
    const run = await w.admitted();
    await w.surroundings.clock.advance(1_000);
    expect(await w.ended(run)).toMatchObject({ status: 'success', attempt: 1 });
    expect(await messagesOf(w)).toEqual(['hello', 'working', 'result', 'done']);
    const log = await facts(w, run.runId);
    expect(
      log.filter(({ body }) => body.kind === 'custom').map(({ body }) => body.kind === 'custom' && body.data),
    ).toEqual([{ note: 1 }, { note: 3 }]);
    expect(log.filter(({ body }) => body.kind === 'run' && body.terminal)).toHaveLength(1);
    expect(finished).toEqual(['success']);
    await w.runtime.stop();
  });

  test(
    'a success that cannot be stored is not reported; recovery finishes it when the store is back',
    verifies('RT-06', 'RT-24', 'RT-25'),
    async () => {
      let down = true;
      const finished: string[] = [];
      const w = world({
        stores: (stores) => withFaults(stores, ({ method }) => (down && method === 'finalize' ? 'fail-before' : null)),
        hooks: { onFinished: (run) => void finished.push(run.status) },
      });
      const { clock } = w.surroundings;
      await w.runtime.start();
      const run = await w.admitted();
      await clock.advance(2_000);
      expect(await w.stores.runs.get(run.runId)).toMatchObject({ status: 'running', acknowledged: false });
      expect(finished).toEqual([]);
      expect(w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
      down = false;
      await clock.advance(20_000);
      expect(await w.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
      expect(finished).toEqual(['success']);
      expect(await messagesOf(w)).toEqual(['hello', 'You said: hello']);
      await w.runtime.stop();
    },
  );

  test('an outage in the middle of a run is no error of the run: it goes on when the store is back, without running a tool again', async () => {
    let down = false;
    const ran: string[] = [];
    const w = world({
      script: {
        model: (messages) => {
          if (messages.length !== 1) return { text: 'done' };
          return { text: 'working', calls: [{ name: 'quick' }] };
        },
        tool: async ({ name }) => {
          ran.push(name);
          return 'result';
        },
      },
      stores: (stores) =>
        withFaults(stores, ({ port, method, count }) => {
          // From the second checkpoint on, for five seconds.
          if (method === 'put' && count === 3) {
            down = true;
            void w.surroundings.clock.sleep(5_000).then(() => {
              down = false;
            });
          }
          return down && port === 'checkpoints' ? 'fail-before' : null;
        }),
    });
    await w.runtime.start();
    const run = await w.admitted();
    await w.surroundings.clock.advance(4_000);
    expect(w.runtime.stats()).toMatchObject({ held: 0 });
    await w.surroundings.clock.advance(20_000);
    expect(await w.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
    expect(await messagesOf(w)).toEqual(['hello', 'working', 'result', 'done']);
    expect(ran).toEqual(['quick']);
    await w.runtime.stop();
  });
});
