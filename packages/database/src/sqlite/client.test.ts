import { NO_LOG } from '@reindeer/protocol';
import { flush, leakCheck } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Call } from '../scripts.ts';
import { SqliteClient } from './client.ts';
import type { Engine, EngineEvents } from './engine.ts';
import type { FromWorker, ToWorker } from './worker.ts';

/** An engine that does what the test says, when the test says it. */
class FakeEngine implements Engine {
  readonly events: EngineEvents;
  readonly posted: ToWorker[] = [];
  terminated = false;
  /** The last write of a clean stop is answered without being asked for. */
  closesByItself = true;

  constructor(events: EngineEvents) {
    this.events = events;
  }
  post(message: ToWorker): void {
    this.posted.push(structuredClone(message));
    if (message.kind === 'close') this.events.onExit();
    else if (this.closesByItself && message.operations.some(({ name }) => name === 'database.close'))
      setImmediate(() => this.answer());
  }
  terminate(): void {
    this.terminated = true;
    this.events.onExit();
  }
  ready(): void {
    this.events.onMessage({ kind: 'ready' });
  }
  get batches() {
    return this.posted.filter((message) => message.kind === 'batch');
  }
  /** Answers the newest batch: each operation with its own input. */
  answer(part: Partial<FromWorker & { kind: 'batch' }> = {}): void {
    const batch = this.batches.at(-1);
    if (batch === undefined) throw new Error('There is no batch to answer.');
    this.events.onMessage({
      kind: 'batch',
      id: batch.id,
      results: batch.operations.map((operation) => ({ ok: true, value: operation.input })),
      appended: [],
      ...part,
    });
  }
}

let engines: FakeEngine[] = [];
const engine = (index = -1): FakeEngine => {
  const found = engines.at(index);
  if (found === undefined) throw new Error('No engine was started.');
  return found;
};
const create = (part: Partial<ConstructorParameters<typeof SqliteClient>[0]> = {}) =>
  new SqliteClient({
    start: (events) => {
      const started = new FakeEngine(events);
      engines.push(started);
      return started;
    },
    restartable: true,
    logger: NO_LOG,
    ...part,
  });
/** Scripts do not run here, so that any input will do. */
const ask = (call: Call, input: unknown): Promise<unknown> => call('runs.get', input as never);
const outcome = (promise: Promise<unknown>) =>
  promise.then(
    (value) => value,
    (error: { code: string; retryable: boolean }) => `${error.code}${error.retryable ? ' (retryable)' : ''}`,
  );

leakCheck();
beforeEach(() => {
  engines = [];
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

test('calls of one turn travel together, and what comes while a batch is on the way forms the next', async () => {
  const client = create();
  const first = [1, 2, 3].map((n) => ask(client.call, n));
  expect(engines).toEqual([]);
  await flush();
  engine().ready();
  expect(engine().batches.map((batch) => batch.operations.length)).toEqual([3]);
  const second = [4, 5].map((n) => ask(client.call, n));
  await flush();
  const third = ask(client.call, 6);
  await flush();
  // At most one batch is on the way.
  expect(engine().batches).toHaveLength(1);
  engine().answer();
  expect(await Promise.all(first)).toEqual([1, 2, 3]);
  await flush();
  expect(engine().batches.map((batch) => batch.operations.map((operation) => operation.input))).toEqual([
    [1, 2, 3],
    [4, 5, 6],
  ]);
  engine().answer();
  expect(await Promise.all([...second, third])).toEqual([4, 5, 6]);
  await client.close();
});

test('a batch is bounded, and the rest follows in order', async () => {
  const client = create({ maxBatch: 2 });
  const all = [1, 2, 3].map((n) => ask(client.call, n));
  await flush();
  engine().ready();
  engine().answer();
  await flush();
  engine().answer();
  expect(await Promise.all(all)).toEqual([1, 2, 3]);
  expect(engine().batches.map((batch) => batch.operations.length)).toEqual([2, 1]);
  await client.close();
});

test('a renewal goes before everything that waits', async () => {
  const client = create();
  const waiting = ask(client.call, 'waiting');
  const renewal = ask(client.callFirst, 'renewal');
  await flush();
  engine().ready();
  expect(engine().batches[0]?.operations.map((operation) => operation.input)).toEqual(['renewal', 'waiting']);
  engine().answer();
  await Promise.all([waiting, renewal]);
  await client.close();
});

test('past its bound the queue refuses at once, and recovers', async () => {
  const client = create({ maxQueued: 2 });
  const kept = [1, 2].map((n) => ask(client.call, n));
  expect(await outcome(ask(client.call, 3))).toBe('store_unavailable (retryable)');
  await flush();
  engine().ready();
  engine().answer();
  expect(await Promise.all(kept)).toEqual([1, 2]);
  const later = ask(client.call, 4);
  await flush();
  engine().answer();
  expect(await later).toBe(4);
  await client.close();
});

test('an operation that fails rejects its own caller only', async () => {
  const client = create();
  const all = [1, 2].map((n) => outcome(ask(client.call, n)));
  await flush();
  engine().ready();
  engine().answer({
    results: [
      { ok: false, error: { code: 'conflict', message: 'No.', retryable: false } },
      { ok: true, value: 2 },
    ],
  });
  expect(await Promise.all(all)).toEqual(['conflict', 2]);
  await client.close();
});

test('an input that is no plain data rejects its own caller only', async () => {
  const client = create();
  const all = [1, () => 'not data', 2].map((input) => outcome(ask(client.call, input)));
  await flush();
  engine().ready();
  await flush();
  engine().answer();
  expect(await Promise.all(all)).toEqual([1, 'bad_request', 2]);
  const alone = outcome(ask(client.call, () => 'not data'));
  await flush();
  expect(await alone).toBe('bad_request');
  await client.close();
});

test('the unexpected end of the thread rejects all callers, and the next call starts another', async () => {
  const client = create();
  const answered = ask(client.call, 1);
  await flush();
  engine().ready();
  engine().answer();
  await answered;
  const onTheWay = outcome(ask(client.call, 2));
  await flush();
  const waiting = outcome(ask(client.call, 3));
  engine().events.onError(new Error('out of memory'));
  engine().events.onExit();
  expect(await Promise.all([onTheWay, waiting])).toEqual([
    'store_unavailable (retryable)',
    'store_unavailable (retryable)',
  ]);
  const next = ask(client.call, 4);
  await flush();
  expect(engines).toHaveLength(2);
  engine().ready();
  engine().answer();
  expect(await next).toBe(4);
  // A late word of the dead thread changes nothing.
  engine(0).answer();
  await client.close();
  expect(engine().posted.at(-1)).toEqual({ kind: 'close' });
});

test('a database that cannot be opened fails clearly, and is not tried for ever', async () => {
  const client = create();
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    const call = outcome(ask(client.call, attempt));
    await flush();
    engine().events.onMessage({
      kind: 'refused',
      error: { code: 'store_unavailable', message: 'Busy.', retryable: true },
    });
    engine().events.onExit();
    expect(await call).toBe('store_unavailable (retryable)');
  }
  expect(await outcome(ask(client.call, 4))).toBe('store_unavailable (retryable)');
  expect(engines).toHaveLength(3);
  await client.close();
});

test('a refusal that no retry can help is final at once', async () => {
  const client = create();
  const call = outcome(ask(client.call, 1));
  await flush();
  engine().events.onMessage({ kind: 'refused', error: { code: 'data_too_new', message: 'New.', retryable: false } });
  engine().events.onExit();
  expect(await call).toBe('data_too_new');
  expect(await outcome(ask(client.call, 2))).toBe('data_too_new');
  expect(engines).toHaveLength(1);
  await client.close();
});

test('a database in memory is not started again with nothing in it', async () => {
  const client = create({ restartable: false });
  const call = outcome(ask(client.call, 1));
  await flush();
  engine().ready();
  engine().events.onExit();
  expect(await call).toBe('store_unavailable (retryable)');
  expect(await outcome(ask(client.call, 2))).toBe('store_unavailable');
  expect(engines).toHaveLength(1);
  await client.close();
});

test('a batch without an answer is given up in time; later calls are refused until it answers', async () => {
  const client = create({ answerMs: 1000 });
  const call = outcome(ask(client.call, 1));
  await flush();
  engine().ready();
  const waiting = outcome(ask(client.call, 2));
  vi.advanceTimersByTime(1000);
  expect(await Promise.all([call, waiting])).toEqual([
    'store_unavailable (retryable)',
    'store_unavailable (retryable)',
  ]);
  expect(await outcome(ask(client.call, 3))).toBe('store_unavailable (retryable)');
  engine().answer();
  const next = ask(client.call, 4);
  await flush();
  engine().answer();
  expect(await next).toBe(4);
  await client.close();
});

test('listeners hear of appended facts after the answer, also when one of them fails', async () => {
  const client = create();
  const heard: string[] = [];
  const leave = client.onAppend((threadId, head) => heard.push(`a ${threadId} ${head}`));
  client.onAppend(() => {
    throw new Error('a listener fails');
  });
  client.onAppend((threadId, head) => heard.push(`b ${threadId} ${head}`));
  const answer = async () => {
    const call = ask(client.call, 1);
    await flush();
    if (engine().batches.length === 0) engine().ready();
    engine().answer({ appended: [['t', 2]] });
    await call;
  };
  await answer();
  leave();
  leave();
  await answer();
  expect(heard).toEqual(['a t 2', 'b t 2', 'b t 2']);
  await client.close();
});

test('close waits for what was called before, refuses what comes after, and can be repeated', async () => {
  const client = create();
  const call = ask(client.call, 1);
  await flush();
  engine().ready();
  engine().closesByItself = false;
  const closing = client.close();
  expect(client.close()).toBe(closing);
  expect(await outcome(ask(client.call, 2))).toBe('store_unavailable');
  engine().answer();
  expect(await call).toBe(1);
  await flush();
  expect(engine().batches.at(-1)?.operations).toEqual([{ name: 'database.close', input: {} }]);
  engine().answer();
  await closing;
  expect(engine().posted.at(-1)).toEqual({ kind: 'close' });
  expect(await outcome(ask(client.call, 3))).toBe('store_unavailable');
});

test('close before any call starts nothing', async () => {
  await create().close();
  expect(engines).toEqual([]);
});

test('close ends a thread that does not answer, within its bound', async () => {
  const client = create({ answerMs: 1000 });
  const call = outcome(ask(client.call, 1));
  await flush();
  engine().ready();
  vi.advanceTimersByTime(1000);
  await call;
  const stuck = engine();
  stuck.post = () => {};
  const closing = client.close();
  await flush();
  vi.advanceTimersByTime(10_000);
  await closing;
  expect(stuck.terminated).toBe(true);
});
