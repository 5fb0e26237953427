import { MemoryDatabase } from '@reindeer/database';
import type { Admission, AdmissionResult, Run, Stores } from '@reindeer/protocol';
import {
  type Deferred,
  deferred,
  faultOnce,
  flush,
  makeAdmission,
  testSurroundings,
  VirtualClock,
  verifies,
  withFaults,
} from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import type { Script } from '../testing/scripted-graph.ts';
import { collect, human, messagesOf, USER, type World, type WorldOptions, world } from '../testing/world.ts';

const say = (text: string) => ({ request: { input: { messages: [human(text)] } } });

/** A model that answers a turn when the test says so, by the text of the turn. */
function conversation(): { readonly script: Script; readonly asked: string[]; answer: (text: string) => void } {
  const gates = new Map<string, Deferred<void>>();
  const gate = (text: string) => {
    const one = gates.get(text) ?? deferred<void>();
    gates.set(text, one);
    return one;
  };
  const asked: string[] = [];
  return {
    asked,
    answer: (text) => gate(text).resolve(),
    script: {
      model: async (messages, context) => {
        const text = String(messages.at(-1)?.content);
        asked.push(text);
        const aborted = new Promise<never>((_, reject) => {
          context.signal.addEventListener('abort', () => reject(context.signal.reason), { once: true });
        });
        await Promise.race([gate(text).promise, aborted]);
        return { text: `answer to ${text}` };
      },
    },
  };
}

/** Processes on one database and one clock; `kill` cuts a process off its stores, as `kill -9` does. */
function machine() {
  const database = new MemoryDatabase(testSurroundings({ seed: 99 }).random);
  const clock = new VirtualClock();
  let seed = 1;
  const boot = (instanceId: string, options: WorldOptions = {}) => {
    let dead = false;
    seed += 1;
    const stores = (inner: Stores) =>
      withFaults(options.stores?.(inner) ?? inner, () =>
        dead ? { delayBefore: new Promise<void>(() => undefined) } : null,
      );
    const w = world({ ...options, database, clock, seed, stores, settings: { instanceId, ...options.settings } });
    return { w, kill: () => (dead = true) };
  };
  return { clock, boot };
}

const enqueue = async (w: World, text: string, more: object = {}): Promise<Run> => {
  const result = await w.create({ ...say(text), multitaskStrategy: 'enqueue', ...more });
  if (!('run' in result)) throw new Error(`neither admitted nor queued: ${JSON.stringify(result)}`);
  return result.run;
};

async function stopNow(w: World): Promise<void> {
  const stopped = w.runtime.stop({ drainMs: 0 });
  await w.surroundings.clock.advance(20_000);
  await stopped;
}

describe('runs that wait for their turn', () => {
  test('run one after the other, in the order of admission, each on what the one before left', async () => {
    const c = conversation();
    const w = world({ script: c.script });
    await w.runtime.start();
    const runs = [await enqueue(w, 'one'), await enqueue(w, 'two'), await enqueue(w, 'three')];
    expect(runs.map((run) => run.queued)).toEqual([false, true, true]);
    const streams = runs.map((run) => collect(w.read(run, { modes: ['updates'] })));
    await flush();
    expect(c.asked).toEqual(['one']);
    expect(w.runtime.stats()).toMatchObject({ held: 1, leases: 1 });
    for (const text of ['one', 'two', 'three']) {
      c.answer(text);
      await flush(10);
    }
    expect(c.asked).toEqual(['one', 'two', 'three']);
    for (const run of runs) expect(await w.ended(run)).toMatchObject({ status: 'success', attempt: 1, queued: false });
    expect(await messagesOf(w)).toEqual(['one', 'answer to one', 'two', 'answer to two', 'three', 'answer to three']);
    // Whoever read from the admission on got the whole run, and its end.
    for (const events of await Promise.all(streams)) {
      expect(events.map(({ event }) => event)).toContain('updates');
      expect(events.at(-1)?.event).toBe('end');
    }
    expect(w.runtime.stats()).toMatchObject({ held: 0, leases: 0 });
    await w.runtime.stop();
  });

  test(
    'have the secrets that came with them when their turn comes, and no store has them',
    verifies('SK-8'),
    async () => {
      const c = conversation();
      const had: unknown[] = [];
      const model: Script['model'] = (messages, context) => {
        had.push(context.secrets);
        return c.script.model(messages, context);
      };
      const w = world({ script: { model } });
      await w.runtime.start();
      const given = { secrets: { KEY: 'value-of-the-run' } };
      const runs = [await enqueue(w, 'one', given), await enqueue(w, 'two', given), await enqueue(w, 'three')];
      for (const text of ['one', 'two', 'three']) {
        c.answer(text);
        await flush(10);
      }
      expect(had).toEqual([given.secrets, given.secrets, {}]);
      for (const run of runs) expect(JSON.stringify(await w.ended(run))).not.toContain('value-of-the-run');
      await w.runtime.stop();
    },
  );

  test('are bounded per thread', async () => {
    const c = conversation();
    const w = world({ script: c.script, settings: { maxQueuedRuns: 2 } });
    await w.runtime.start();
    for (const text of ['one', 'two', 'three']) await enqueue(w, text);
    expect(await w.create({ ...say('four'), multitaskStrategy: 'enqueue' })).toMatchObject({
      outcome: 'conflict',
      reason: 'queue_full',
    });
    c.answer('one');
    await flush(10);
    expect((await enqueue(w, 'four')).queued).toBe(true);
    await stopNow(w);
  });

  test('are started by whichever instance frees the thread, and survive the death of the one that took them in', async () => {
    const m = machine();
    const c = conversation();
    const a = m.boot('a', { script: c.script });
    const b = m.boot('b', { script: c.script });
    await a.w.runtime.start();
    await b.w.runtime.start();
    const first = await enqueue(a.w, 'one');
    const second = await enqueue(b.w, 'two', { idempotencyKey: 'k' });
    const third = await enqueue(b.w, 'three');
    c.answer('one');
    await flush(10);
    expect(await a.w.stores.runs.get(second.runId)).toMatchObject({ status: 'running', owner: 'a' });
    // Both of the others die with a run in hand and one in the queue; a new process goes on with everything.
    a.kill();
    b.kill();
    const d = m.boot('d', { script: c.script });
    await d.w.runtime.start();
    await m.clock.advance(20_000);
    c.answer('two');
    c.answer('three');
    await m.clock.advance(1);
    expect(await d.w.ended(second)).toMatchObject({ status: 'success', attempt: 2 });
    expect(await d.w.ended(third)).toMatchObject({ status: 'success', attempt: 1 });
    expect(await messagesOf(d.w)).toEqual(['one', 'two', 'three'].flatMap((text) => [text, `answer to ${text}`]));
    // The same request again, long after its end and on another instance, is the run of then.
    const same = { ...say('two'), multitaskStrategy: 'enqueue' as const, idempotencyKey: 'k' };
    expect(await d.w.create(same)).toMatchObject({ outcome: 'reused', run: { runId: second.runId } });
    expect(await d.w.create({ ...same, ...say('other') })).toMatchObject({ reason: 'key_reused' });
    expect(first.runId).not.toBe(second.runId);
    await d.w.runtime.stop();
  });

  test('go on after a restart, when whoever ended the run before died right then', async () => {
    const m = machine();
    const c = conversation();
    let holder: { kill: () => void } | null = null;
    const a = m.boot('a', {
      script: c.script,
      stores: (inner) =>
        withFaults(inner, ({ method }) => {
          // Ended the run, and died before it could look at the queue.
          if (method === 'takeQueued') holder?.kill();
          return method === 'takeQueued' ? { delayBefore: new Promise<void>(() => undefined) } : null;
        }),
    });
    holder = a;
    await a.w.runtime.start();
    const first = await enqueue(a.w, 'one');
    const second = await enqueue(a.w, 'two', { crashPolicy: 'error' });
    c.answer('one');
    c.answer('two');
    await flush(10);
    const b = m.boot('b', { script: c.script });
    expect(await b.w.stores.runs.get(first.runId)).toMatchObject({ status: 'success', acknowledged: true });
    expect(await b.w.stores.runs.get(second.runId)).toMatchObject({ queued: true, owner: null });
    await b.w.runtime.start();
    await flush(10);
    // Nobody held it, so that nobody's death can have failed it.
    expect(await b.w.ended(second)).toMatchObject({ status: 'success', attempt: 1 });
    await b.w.runtime.stop();
  });

  test('a turn whose answer is lost is the same turn when asked again', async () => {
    const c = conversation();
    const w = world({
      script: c.script,
      stores: (inner) => withFaults(inner, faultOnce('fail-after', 'runs.takeQueued')),
    });
    await w.runtime.start();
    await enqueue(w, 'one');
    const second = await enqueue(w, 'two');
    c.answer('one');
    c.answer('two');
    await w.surroundings.clock.advance(1_000);
    expect(await w.ended(second)).toMatchObject({ status: 'success', attempt: 1 });
    await w.runtime.stop();
  });

  test('can be cancelled while they wait, on any instance: ended at once, the others move up', async () => {
    const m = machine();
    const c = conversation();
    const a = m.boot('a', { script: c.script });
    const b = m.boot('b', { script: c.script });
    await a.w.runtime.start();
    await b.w.runtime.start();
    await enqueue(a.w, 'one');
    const second = await enqueue(a.w, 'two');
    const third = await enqueue(a.w, 'three');
    const stream = collect(a.w.read(second));
    expect(await b.w.cancel(second, 'rollback', true)).toMatchObject({
      outcome: 'accepted',
      stopped: true,
      run: { status: 'interrupted', acknowledged: true, attempt: 0 },
    });
    expect(await b.w.cancel(second)).toMatchObject({ outcome: 'accepted', stopped: true });
    await m.clock.advance(6_000);
    expect((await stream).at(-1)).toMatchObject({ event: 'end' });
    c.answer('one');
    c.answer('three');
    await m.clock.advance(1_000);
    expect(await a.w.ended(third)).toMatchObject({ status: 'success' });
    expect(c.asked).toEqual(['one', 'three']);
    for (const { w } of [a, b]) await w.runtime.stop();
  });

  test('one whose reader leaves ends with it when it was created so; others stay', verifies('RS-16'), async () => {
    const c = conversation();
    const w = world({ script: c.script });
    await w.runtime.start();
    await enqueue(w, 'one');
    const bound = await enqueue(w, 'two', { onDisconnect: 'cancel' });
    const free = await enqueue(w, 'three', { onDisconnect: 'continue' });
    for (const run of [bound, free]) await w.runtime.runs.disconnected({ runId: run.runId, threadId: run.threadId });
    expect(await w.stores.runs.get(bound.runId)).toMatchObject({ status: 'interrupted', acknowledged: true });
    expect(await w.stores.runs.get(free.runId)).toMatchObject({ queued: true });
    await stopNow(w);
  });

  test('end with the run that a newer one replaces', verifies('RA-09'), async () => {
    for (const strategy of ['interrupt', 'rollback'] as const) {
      const c = conversation();
      const w = world({ script: c.script });
      await w.runtime.start();
      const first = await enqueue(w, 'one');
      const second = await enqueue(w, 'two');
      await flush();
      const newest = await w.admitted({ ...say('newest'), multitaskStrategy: strategy });
      expect(await w.stores.runs.get(second.runId)).toMatchObject({ status: 'interrupted', acknowledged: true });
      c.answer('newest');
      expect(await w.ended(newest)).toMatchObject({ status: 'success' });
      expect((await w.ended(first)).status).toBe(strategy === 'rollback' ? 'error' : 'interrupted');
      expect(c.asked).toEqual(['one', 'newest']);
      await w.runtime.stop();
    }
  });

  test('hold the thread against edits and deletion, and wait behind an edit', verifies('RA-08'), async () => {
    const c = conversation();
    const w = world({ script: c.script });
    await w.runtime.start();
    const own = { threadId: 'thread-1', userId: USER };
    c.answer('one');
    await w.ended(await enqueue(w, 'one'));
    const { stores } = w;
    expect(await stores.runs.admit(edit(w))).toMatchObject({ outcome: 'admitted' });
    const waiting = await enqueue(w, 'two');
    expect(waiting.queued).toBe(true);
    expect(await w.runtime.threads.delete(own)).toBe('busy');
    expect(await stores.runs.release({ runId: 'edit', token: 'edit' })).toEqual({ outcome: 'ok', waiting: true });
    // The thread is free and has a queue: still nobody gets ahead of it.
    expect(await w.runtime.threads.delete(own)).toBe('busy');
    expect(await w.create(say('three'))).toMatchObject({ outcome: 'conflict', reason: 'busy' });
    c.answer('two');
    await w.surroundings.clock.advance(2_000);
    expect(await w.ended(waiting)).toMatchObject({ status: 'success' });
    expect(await w.runtime.threads.delete(own)).toBe('deleted');
    expect(await w.runtime.threads.get(own)).toBeNull();
    await w.runtime.stop();
  });

  test('an edit that ends gives the turn at once', async () => {
    const c = conversation();
    const held = deferred();
    let hold = false;
    const w = world({
      script: c.script,
      stores: (inner) =>
        withFaults(inner, ({ method }) => (hold && method === 'put' ? { delayBefore: held.promise } : null)),
    });
    await w.runtime.start();
    const own = { threadId: 'thread-1', userId: USER };
    c.answer('one');
    await w.ended(await enqueue(w, 'one'));
    hold = true;
    const edit = w.runtime.threads.updateState({ ...own, values: { title: 't' }, checkpointId: null, asNode: 'model' });
    await flush();
    const waiting = await enqueue(w, 'two');
    expect(waiting.queued).toBe(true);
    hold = false;
    held.resolve();
    expect(await edit).toMatchObject({ outcome: 'updated' });
    c.answer('two');
    await flush(10);
    expect(await w.ended(waiting)).toMatchObject({ status: 'success' });
    await w.runtime.stop();
  });

  test('a caller who leaves while its run is taken in leaves nothing behind', verifies('RA-17', 'RA-04'), async () => {
    const c = conversation();
    const held = deferred();
    let late = false;
    const w = world({
      script: c.script,
      stores: (inner) =>
        withFaults(inner, ({ method }) => (late && method === 'admit' ? { delayAfter: held.promise } : null)),
    });
    await w.runtime.start();
    await enqueue(w, 'one');
    late = true;
    const caller = new AbortController();
    const admission = w.create({ ...say('two'), multitaskStrategy: 'enqueue' }, caller.signal);
    const left = expect(admission).rejects.toThrow('left');
    await flush();
    caller.abort(new Error('left'));
    held.resolve();
    await left;
    const list = { threadId: 'thread-1', userId: USER, status: null, limit: 10, offset: 0 };
    expect((await w.runtime.runs.list(list)).map((run) => [run.status, run.acknowledged])).toEqual([
      ['interrupted', true],
      ['running', false],
    ]);
    c.answer('one');
    await w.surroundings.clock.advance(10_000);
    expect(c.asked).toEqual(['one']);
    await w.runtime.stop();
  });

  test.each(['fail-after', 'fail-before'] as const)(
    'an admission without an answer (%s) is found, or was none',
    async (fault) => {
      const c = conversation();
      let lost = false;
      const w = world({
        script: c.script,
        stores: (inner) => withFaults(inner, ({ method }) => (lost && method === 'admit' ? fault : null)),
      });
      await w.runtime.start();
      await enqueue(w, 'one');
      lost = true;
      const result: AdmissionResult | null = await w
        .create({ ...say('two'), multitaskStrategy: 'enqueue' })
        .catch(() => null);
      lost = false;
      expect(result?.outcome ?? 'none').toBe(fault === 'fail-after' ? 'queued' : 'none');
      c.answer('one');
      c.answer('two');
      await w.surroundings.clock.advance(3_000);
      expect(c.asked).toEqual(fault === 'fail-after' ? ['one', 'two'] : ['one']);
      await w.runtime.stop();
    },
  );

  test('a process that is full or stopping leaves them to others', async () => {
    const m = machine();
    const c = conversation();
    const a = m.boot('a', { script: c.script, settings: { maxActiveRuns: 2 } });
    const b = m.boot('b', { script: c.script });
    await a.w.runtime.start();
    await enqueue(a.w, 'one');
    const second = await enqueue(a.w, 'two');
    const stopped = a.w.runtime.stop({ drainMs: 60_000, hardMs: 60_000 });
    await flush();
    c.answer('one');
    await m.clock.advance(1);
    await stopped;
    expect(await b.w.stores.runs.get(second.runId)).toMatchObject({ queued: true, owner: null });
    c.answer('two');
    await b.w.runtime.start();
    await flush(10);
    expect(await b.w.ended(second)).toMatchObject({ status: 'success' });
    await b.w.runtime.stop();
  });
});

/** An edit of the thread by another process. */
function edit(w: World): Admission {
  const { clock } = w.surroundings;
  return makeAdmission({
    runId: 'edit',
    threadId: 'thread-1',
    userId: USER,
    assistantId: 'scripted',
    kind: 'checkpoint_write',
    crashPolicy: 'error',
    createThread: false,
    owner: 'peer',
    token: 'edit',
    leaseExpiresAt: clock.now() + 12_000,
    now: clock.now(),
  });
}
