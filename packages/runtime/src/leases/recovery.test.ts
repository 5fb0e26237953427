import { openMemory } from '@reindeer/database';
import { type Admission, ReindeerError, type RunStore } from '@reindeer/protocol';
import { deferred, flush, testSurroundings, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { request } from '../testing/world.ts';
import { type ClaimedRun, Recovery } from './recovery.ts';

const settings = { leaseMs: 12_000, graceMs: 3_000, sweepMs: 2_000 };

function scene() {
  const surroundings = testSurroundings();
  const stores = openMemory({ surroundings });
  const admit = async (runId: string, owner: string, more: Partial<Admission> = {}) =>
    stores.runs.admit({
      runId,
      threadId: `thread-${runId}`,
      userId: 'ann',
      assistantId: 'a',
      kind: 'run',
      multitaskStrategy: 'reject',
      onDisconnect: 'continue',
      crashPolicy: 'resume',
      idempotencyKey: null,
      payloadHash: '',
      request: request({}),
      metadata: {},
      createThread: true,
      owner,
      token: `token-${runId}`,
      leaseExpiresAt: surroundings.clock.now() + 12_000,
      now: surroundings.clock.now(),
      ...more,
    });
  const recovery = (instanceId: string, more: Partial<ConstructorParameters<typeof Recovery>[0]> = {}) => {
    const claimed: ClaimedRun[] = [];
    const made = new Recovery({
      runs: stores.runs,
      surroundings,
      settings: { ...settings, instanceId },
      held: () => [],
      onClaimed: (one) => void claimed.push(one),
      ...more,
    });
    return { recovery: made, claimed, ids: () => claimed.map(({ run }) => run.runId) };
  };
  return { ...surroundings, stores, admit, recovery };
}

describe('recovery', () => {
  test(
    'takes over what has been expired for the grace, under a new token; two sweepers never both',
    verifies('RL-17', 'RL-18'),
    async () => {
      const s = scene();
      await s.admit('a', 'dead');
      await s.admit('b', 'dead');
      const [one, two] = [s.recovery('one'), s.recovery('two')];
      await s.clock.advance(15_000);
      await Promise.all([one.recovery.sweep(), two.recovery.sweep()]);
      expect(one.ids().length + two.ids().length).toBe(0);
      await s.clock.advance(1);
      await Promise.all([one.recovery.sweep(), two.recovery.sweep()]);
      expect([...one.ids(), ...two.ids()].sort()).toEqual(['a', 'b']);
      const tokens = [...one.claimed, ...two.claimed].map(({ token }) => token);
      expect(new Set([...tokens, 'token-a', 'token-b']).size).toBe(4);
    },
  );

  test(
    'a candidate that was renewed meanwhile, and one that is held here, are left alone',
    verifies('RL-19', 'RL-20'),
    async () => {
      const s = scene();
      await s.admit('renewed', 'peer');
      await s.admit('mine', 'one');
      const one = s.recovery('one', { held: () => ['mine'] });
      await s.clock.advance(20_000);
      await s.stores.runs.renew({
        holders: [
          { runId: 'renewed', token: 'token-renewed', expiresAt: s.clock.now() + 12_000, allowInterrupted: false },
        ],
        now: s.clock.now(),
      });
      expect(await one.recovery.sweep()).toBe(0);
    },
  );

  test('at the start the rows of our own predecessor are claimed at once, those of others are not', async () => {
    const s = scene();
    await s.admit('old', 'one');
    await s.admit('other', 'two');
    const one = s.recovery('one');
    expect(await one.recovery.atStart()).toBe(1);
    expect(one.ids()).toEqual(['old']);
  });

  test('goes on after a full batch', async () => {
    const s = scene();
    for (let i = 0; i < 150; i += 1) await s.admit(`run-${i}`, 'one');
    const one = s.recovery('one');
    expect(await one.recovery.atStart()).toBe(150);
    expect(new Set(one.ids()).size).toBe(150);
  });

  test('a store that goes away between two batches ends no start that has taken something over', async () => {
    const s = scene();
    for (let n = 0; n < 12; n += 1) await s.admit(`run-${n}`, 'me');
    let asked = 0;
    let away = true;
    const { recovery, ids } = s.recovery('me', {
      runs: {
        claimOrphans: (input) => {
          asked += 1;
          if (away && asked > 1) return Promise.reject(new ReindeerError('store_unavailable', 'away'));
          return s.stores.runs.claimOrphans(input);
        },
        relinquish: (fence) => s.stores.runs.relinquish(fence),
      },
    });
    expect(await recovery.atStart()).toBe(8);
    away = false;
    await s.clock.advance(16_000);
    await recovery.sweep();
    expect(new Set(ids()).size).toBe(12);
  });

  test('a failure of one run is logged with its ids and stops nothing', verifies('RL-24'), async () => {
    const s = scene();
    await s.admit('bad', 'one');
    await s.admit('good', 'one');
    const seen: string[] = [];
    const one = s.recovery('one', {
      onClaimed: ({ run }) => {
        if (run.runId === 'bad') throw new Error('cannot');
        seen.push(run.runId);
      },
    });
    await one.recovery.atStart();
    expect(seen).toEqual(['good']);
    expect(s.logger.lines).toContainEqual(
      expect.objectContaining({
        level: 'error',
        fields: expect.objectContaining({ runId: 'bad', threadId: 'thread-bad' }),
      }),
    );
  });

  test('one sweep at a time; a store that hangs keeps nobody from stopping the loop', verifies('RL-10'), async () => {
    const s = scene();
    const answer = deferred<Awaited<ReturnType<RunStore['claimOrphans']>>>();
    let calls = 0;
    const one = s.recovery('one', {
      runs: {
        claimOrphans: () => {
          calls += 1;
          return answer.promise;
        },
        relinquish: (fence) => s.stores.runs.relinquish(fence),
      },
    });
    one.recovery.start();
    await s.clock.advance(20_000);
    expect(calls).toBe(1);
    expect(one.recovery.sweep()).toBe(one.recovery.sweep());
    const stopped = one.recovery.stop();
    answer.resolve([]);
    await stopped;
    await s.clock.advance(20_000);
    expect(calls).toBe(1);
    expect(s.clock.sleeping).toBe(0);
  });

  test('a store that cannot answer is asked again at the next sweep', async () => {
    const s = scene();
    await s.admit('a', 'dead');
    let down = true;
    const one = s.recovery('one', {
      runs: {
        claimOrphans: (input) => (down ? Promise.reject(new Error('down')) : s.stores.runs.claimOrphans(input)),
        relinquish: (fence) => s.stores.runs.relinquish(fence),
      },
    });
    one.recovery.start();
    await s.clock.advance(20_000);
    expect(one.ids()).toEqual([]);
    down = false;
    await s.clock.advance(2_000);
    expect(one.ids()).toEqual(['a']);
    await one.recovery.stop();
  });

  test('a claim that is answered after the stop is given back, and another process has it at once', async () => {
    const s = scene();
    await s.admit('a', 'dead');
    await s.clock.advance(16_000);
    const held = deferred();
    const late = s.recovery('one', {
      runs: {
        claimOrphans: async (input) => {
          const claimed = await s.stores.runs.claimOrphans(input);
          await held.promise;
          return claimed;
        },
        relinquish: (fence) => s.stores.runs.relinquish(fence),
      },
    });
    const sweeping = late.recovery.sweep();
    await flush();
    const stopped = late.recovery.stop();
    held.resolve();
    await Promise.all([sweeping, stopped]);
    expect(late.ids()).toEqual([]);
    const other = s.recovery('two');
    expect(await other.recovery.sweep()).toBe(1);
    expect(other.ids()).toEqual(['a']);
  });
});
