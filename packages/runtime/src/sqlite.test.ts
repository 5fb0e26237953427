import { openSqlite, type SqliteStores } from '@reindeer/database';
import type { Stores } from '@reindeer/protocol';
import { deferred, leakCheck, withFaults } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemSurroundings } from './surroundings.ts';
import type { Script } from './testing/scripted-graph.ts';
import { collect, human, joined, messagesOf, texts, USER, type WorldOptions, world } from './testing/world.ts';

const real = systemSurroundings();
const script: Script = {
  model: (messages, context) => {
    context.emit({ step: messages.length });
    return messages.length % 4 === 1
      ? { text: 'looking around', calls: [{ name: 'look' }, { name: 'listen' }] }
      : { text: 'a reindeer' };
  },
  tool: async ({ name }) => `${name} result`,
};

/** The whole runtime on the real database, its thread, and the real clock. */
describe('on SQLite', () => {
  leakCheck();
  let stores: SqliteStores;
  beforeEach(async () => {
    stores = await openSqlite({ folder: ':memory:', surroundings: real });
  });
  afterEach(() => stores.close());
  const boot = (options: WorldOptions = {}) => world({ script, opened: stores, real, ...options });

  test('a run with tools streams, is stored, and its thread can be read, copied and deleted', async () => {
    const w = boot();
    await w.runtime.start();
    const run = await w.admitted({ request: { streamModes: ['values', 'messages-tuple', 'updates', 'custom'] } });
    const events = await collect(w.read(run));
    const all = ['hello', 'looking around', 'look result', 'listen result', 'a reindeer'];
    expect(texts(events)).toEqual(all);
    expect([...joined(events).values()]).toEqual(all.slice(1));
    expect(events.filter(({ event }) => event === 'custom').map(({ data }) => JSON.parse(data))).toEqual([
      { step: 1 },
      { step: 4 },
    ]);
    expect(await w.ended(run)).toMatchObject({ status: 'success', usage: { modelCalls: 2 }, checkpointBefore: '' });
    expect(await messagesOf(w)).toEqual(all);
    const replay = await collect(w.read(run));
    expect([...joined(replay).values()]).toEqual(all.slice(1));
    const copy = await w.runtime.threads.copy({ threadId: 'thread-1', userId: USER });
    expect(await messagesOf(w, copy?.threadId)).toEqual(all);
    expect(await w.runtime.threads.delete({ threadId: 'thread-1', userId: USER })).toBe('deleted');
    expect(await w.runtime.threads.get({ threadId: 'thread-1', userId: USER })).toBeNull();
    await w.runtime.stop();
  });

  test('rollback by a replacement restores the state, and the log says so', async () => {
    const body = deferred<string>();
    const started = deferred();
    let hold = false;
    const w = boot({
      script: {
        ...script,
        tool: async ({ name }) => {
          if (!hold) return name;
          started.resolve();
          return body.promise;
        },
      },
    });
    await w.runtime.start();
    await w.ended(await w.admitted());
    const before = await messagesOf(w);
    hold = true;
    const input = { messages: [human('again')] };
    const second = await w.admitted({
      request: { input: { messages: [human('again'), human('and'), human('more'), human('!')] } },
    });
    await started.promise;
    hold = false;
    const third = await w.admitted({ multitaskStrategy: 'rollback', request: { input } });
    body.resolve('late');
    expect(await w.ended(second)).toMatchObject({ status: 'error', error: 'Rolled back by user' });
    expect(await w.ended(third)).toMatchObject({ status: 'success' });
    expect((await messagesOf(w)).slice(0, before.length + 1)).toEqual([...before, 'again']);
    const log = await stores.log.read({
      threadId: 'thread-1',
      runId: second.runId,
      afterSeq: 0,
      limit: 500,
      maxBytes: 1e9,
    });
    const gone = log.facts.filter(({ body: fact }) => fact.kind === 'message-removed');
    const came = log.facts.filter(({ body: fact }) => fact.kind === 'message');
    expect(gone).toHaveLength(came.length);
    await w.runtime.stop();
  });

  test('a run of a dead process goes on under a new token', async () => {
    const started = deferred();
    let dead = false;
    const cut = (inner: Stores) => withFaults(inner, () => (dead ? 'fail-before' : null));
    const a = boot({
      script: {
        ...script,
        tool: async ({ name }) => {
          if (name === 'look') return 'look result';
          started.resolve();
          return new Promise(() => undefined);
        },
      },
      stores: cut,
    });
    await a.runtime.start();
    const run = await a.admitted();
    await started.promise;
    // The quick tool's end is stored; only then the process dies.
    for (;;) {
      const { facts } = await stores.log.read({
        threadId: 'thread-1',
        runId: run.runId,
        afterSeq: 0,
        limit: 500,
        maxBytes: 1e9,
      });
      if (facts.some(({ body }) => body.kind === 'tool-finished')) break;
    }
    dead = true;
    const b = boot();
    expect(await b.runtime.start()).toEqual({ recovered: 1 });
    expect(await b.ended(run)).toMatchObject({ status: 'success', attempt: 2 });
    expect(await messagesOf(b)).toEqual(['hello', 'looking around', 'look result', 'unknown outcome', 'a reindeer']);
    const { facts } = await stores.log.read({
      threadId: 'thread-1',
      runId: run.runId,
      afterSeq: 0,
      limit: 500,
      maxBytes: 1e9,
    });
    expect(facts.map(({ seq }) => seq)).toEqual(facts.map((_, index) => index + 1));
    await b.runtime.stop();
    await a.runtime.stop({ drainMs: 0, hardMs: 50 });
  });

  test('a hundred runs side by side, each with a reader', async () => {
    const w = boot();
    await w.runtime.start();
    const runs = await Promise.all(Array.from({ length: 100 }, (_, i) => w.admitted({ threadId: `thread-${i}` })));
    const streams = await Promise.all(runs.map((run) => collect(w.read(run))));
    for (const events of streams) expect(texts(events).at(-1)).toBe('a reindeer');
    expect(w.runtime.stats()).toEqual({ held: 0, leases: 0, streams: 0 });
    await w.runtime.stop();
  });
});
