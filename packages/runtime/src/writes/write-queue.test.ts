import type { AttemptAnswer, AttemptWrite, Stores } from '@reindeer/protocol';
import { ReindeerError } from '@reindeer/protocol';
import { checkpointPut, deferred, flush, VirtualClock, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { WriteQueue } from './write-queue.ts';

const FENCE = { runId: 'run', token: 'token' };
const put = (id: string): AttemptWrite => ({ kind: 'put', input: checkpointPut(FENCE, id) });
const nameOf = (write: AttemptWrite): string => (write.kind === 'put' ? write.input.checkpointId : write.kind);
const begin: AttemptWrite = {
  kind: 'begin',
  input: {
    fence: FENCE,
    key: { threadId: 'thread', messageId: 'm', index: 0 },
    toolCallId: null,
    name: 'tool',
    attempt: 1,
    again: false,
    now: 1,
  },
};
const lost = () => new ReindeerError('store_unavailable', 'The store was not reached.', { retryable: true });

/** A queue over a store that says what it was given; `answer` decides per write, and may throw for the whole call. */
function scene(
  answer: (name: string, call: number) => AttemptAnswer | Promise<AttemptAnswer> = () => ({ outcome: 'ok' }),
  groups = false,
) {
  const calls: string[] = [];
  const stored: number[] = [];
  let fenced = 0;
  const clock = new VirtualClock();
  const one = async (write: AttemptWrite): Promise<AttemptAnswer> => {
    calls.push(nameOf(write));
    return answer(nameOf(write), calls.length);
  };
  const many = async (writes: readonly AttemptWrite[]) => {
    calls.push(writes.map(nameOf).join('+'));
    const answers: AttemptAnswer[] = [];
    for (const write of writes) {
      answers.push(await answer(nameOf(write), calls.length));
      if (answers.at(-1)?.outcome === 'incomplete' || answers.at(-1)?.outcome === 'fenced') break;
    }
    return answers;
  };
  const stores = {
    checkpoints: { put: (input: never) => one({ kind: 'put', input }) },
    journal: { begin: (input: never) => one({ kind: 'begin', input }) },
    ...(groups ? { attempts: { write: many } } : {}),
  } as unknown as Pick<Stores, 'attempts' | 'checkpoints' | 'journal'>;
  const queue = new WriteQueue({
    stores,
    clock,
    plan: { tries: 3, backoffMs: 100 },
    onFenced: () => {
      fenced += 1;
    },
    onStored: (done) => stored.push(done),
  });
  return { queue, calls, stored, clock, fenced: () => fenced };
}

const turns = async (count = 10) => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

describe('writes of an attempt', () => {
  test('are sent one after the other in the order of the calls, and nobody waits for them', async () => {
    const held = deferred<AttemptAnswer>();
    const s = scene((name) => (name === 'a' ? held.promise : { outcome: 'ok' }));
    await s.queue.send(put('a'));
    await s.queue.send(put('b'));
    const begun = s.queue.settle(begin);
    await flush();
    expect(s.calls).toEqual(['a']);
    expect(s.queue.idle).toBe(false);
    held.resolve({ outcome: 'ok' });
    expect(await begun).toEqual({ outcome: 'ok' });
    expect(s.calls).toEqual(['a', 'b', 'begin']);
    expect(s.stored).toEqual([1, 2, 3]);
    expect(s.queue.idle).toBe(true);
  });

  test('wait for room when too many are under way', async () => {
    const held = deferred<AttemptAnswer>();
    const s = scene((name) => (name === '0' ? held.promise : { outcome: 'ok' }));
    let taken = 0;
    for (let n = 0; n < 20; n += 1)
      void s.queue.send(put(String(n))).then(() => {
        taken += 1;
      });
    await flush();
    expect(taken).toBe(12);
    held.resolve({ outcome: 'ok' });
    await s.queue.drained();
    await flush();
    expect(taken).toBe(20);
    expect(s.calls).toEqual(Array.from({ length: 20 }, (_, n) => String(n)));
  });

  test('a write that is fenced stops everything behind it: no effect may begin', verifies('RL-08'), async () => {
    const s = scene((name) => (name === 'b' ? { outcome: 'fenced' } : { outcome: 'ok' }));
    await s.queue.send(put('a'));
    await s.queue.send(put('b'));
    await s.queue.send(put('c'));
    await expect(s.queue.settle(begin)).rejects.toMatchObject({ code: 'fenced' });
    expect(s.calls).toEqual(['a', 'b']);
    expect(s.fenced()).toBe(1);
    await expect(s.queue.send(put('d'))).rejects.toMatchObject({ code: 'fenced' });
    await expect(s.queue.drained()).rejects.toMatchObject({ code: 'fenced' });
    expect(s.calls).toEqual(['a', 'b']);
  });

  test('a write whose answer is lost is repeated before anything behind it is sent', verifies('GW-22'), async () => {
    const s = scene((name, call) => {
      if (name === 'a' && call <= 2) throw lost();
      return { outcome: 'ok' };
    });
    await s.queue.send(put('a'));
    const begun = s.queue.settle(begin);
    await s.clock.advance(99);
    expect(s.calls).toEqual(['a']);
    await s.clock.advance(1_000);
    await begun;
    expect(s.calls).toEqual(['a', 'a', 'a', 'begin']);
  });

  test('a write that cannot be stored fails what stands behind it with its error, and nothing is sent any more', async () => {
    const s = scene((name) => {
      if (name === 'b') throw lost();
      return { outcome: 'ok' };
    });
    await s.queue.send(put('a'));
    await s.queue.send(put('b'));
    const begun = s.queue.settle(begin);
    begun.catch(() => undefined);
    await s.clock.advance(5_000);
    await expect(begun).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(s.calls).toEqual(['a', 'b', 'b', 'b']);
    expect(s.fenced()).toBe(0);
    expect(s.clock.sleeping).toBe(0);
  });

  test('what the store misses is sent whole, in its place', async () => {
    let missing = true;
    const s = scene((name) => {
      if (name === 'b' && missing) {
        missing = false;
        return { outcome: 'incomplete' };
      }
      return { outcome: 'ok' };
    });
    await s.queue.send(put('a'));
    await s.queue.send(put('b'), () => put('b-whole'));
    await s.queue.settle(begin);
    expect(s.calls).toEqual(['a', 'b', 'b-whole', 'begin']);
  });

  test('close ends a pause between two tries; nothing is sent afterwards', async () => {
    const s = scene(() => {
      throw lost();
    });
    await s.queue.send(put('a'));
    const begun = s.queue.settle(begin);
    begun.catch(() => undefined);
    await flush();
    s.queue.close();
    s.queue.close();
    await expect(begun).rejects.toMatchObject({ code: 'aborted' });
    await flush();
    expect(s.clock.sleeping).toBe(0);
    expect(s.calls).toEqual(['a']);
  });
});

describe('writes of an attempt in groups', () => {
  test('what is written in one turn of the loop goes as one', async () => {
    const s = scene(undefined, true);
    await s.queue.send(put('a'));
    await s.queue.send(put('b'));
    await s.queue.settle(begin);
    expect(s.calls).toEqual(['a+b+begin']);
    expect(s.stored).toEqual([3]);
  });

  test('a group stops at what is missing and goes on with the whole of it', async () => {
    const s = scene((name) => (name === 'b' ? { outcome: 'incomplete' } : { outcome: 'ok' }), true);
    await s.queue.send(put('a'));
    await s.queue.send(put('b'), () => put('b-whole'));
    await s.queue.settle(begin);
    expect(s.calls).toEqual(['a+b+begin', 'b-whole+begin']);
  });

  test('a group that cannot be stored is tried write by write: what can be stored before the culprit is', async () => {
    const s = scene((name) => {
      if (name === 'b') throw new ReindeerError('internal', 'The row is refused.');
      return { outcome: 'ok' };
    }, true);
    await s.queue.send(put('a'));
    await s.queue.send(put('b'));
    const begun = s.queue.settle(begin);
    begun.catch(() => undefined);
    for (let n = 0; n < 20; n += 1) {
      await turns(2);
      await s.clock.advance(200);
    }
    await expect(begun).rejects.toMatchObject({ code: 'internal' });
    expect(s.calls.slice(0, 4)).toEqual(['a+b+begin', 'a+b+begin', 'a+b+begin', 'a']);
    expect(s.calls.slice(4)).toEqual(['b', 'b', 'b']);
    expect(s.stored.at(-1)).toBe(1);
  });
});
