import type { Stores } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { faultOnce, retried, withFaults } from '../faults.ts';
import { verifies } from '../verifies.ts';
import type { StoresFactory } from './scene.ts';
import { checkpointPut, LEASE, packed, type Scene, scenes, T0 } from './scene.ts';

interface Case {
  /** The port and method that a holder, a client or a sweeper calls. */
  readonly method: string;
  /** Brings the scene to where the call makes sense, and answers the call itself: the same input every time. */
  readonly prepare: (s: Scene) => Promise<(stores: Stores) => Promise<unknown>>;
  /** What the repeated call answers, where that differs from what the lost answer was. */
  readonly again?: object | string;
}

const KEY = { threadId: 'thread', messageId: 'm', index: 0 };

const CASES: readonly Case[] = [
  {
    method: 'threads.create',
    prepare: async () => (stores) =>
      stores.threads.create({ threadId: 'thread', userId: 'user', metadata: { a: 1 }, now: T0 }),
    again: { outcome: 'exists' },
  },
  {
    method: 'threads.update',
    prepare: async (s) => {
      await s.a.threads.create({ threadId: 'thread', userId: 'user', metadata: { a: 1 }, now: T0 });
      return (stores) =>
        stores.threads.update({
          threadId: 'thread',
          userId: 'user',
          metadata: { a: null, b: 2 },
          title: 't',
          touch: true,
          now: T0,
        });
    },
  },
  {
    method: 'threads.delete',
    prepare: async (s) => {
      await s.ended('success');
      const { fence } = await s.admit({ kind: 'delete' });
      return (stores) => stores.threads.delete({ fence, threadId: 'thread', userId: 'user' });
    },
    again: { outcome: 'fenced' },
  },
  {
    method: 'runs.admit',
    prepare: async (s) => {
      const input = s.admission({ idempotencyKey: 'key' });
      return (stores) => stores.runs.admit(input);
    },
    again: { outcome: 'reused' },
  },
  {
    method: 'runs.start',
    prepare: async (s) => {
      const { fence } = await s.admit();
      return (stores) => stores.runs.start({ fence, checkpointBefore: '', now: T0 });
    },
  },
  ...(['success', 'error', 'interrupted'] as const).map(
    (status): Case => ({
      method: 'runs.finalize',
      prepare: async (s) => {
        const { fence } = await s.running();
        const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2, modelCalls: 1 };
        return (stores) =>
          stores.runs.finalize({ fence, status, error: null, stopReason: null, usage, unlessCancelled: true, now: T0 });
      },
      again: { outcome: 'terminal', run: { status } },
    }),
  ),
  {
    method: 'runs.requestCancel',
    prepare: async (s) => {
      const { run } = await s.running();
      return (stores) => stores.runs.requestCancel({ runId: run.runId, action: 'rollback', now: T0 });
    },
  },
  {
    method: 'runs.renew',
    prepare: async (s) => {
      const { fence } = await s.running();
      const holders = [{ ...fence, expiresAt: T0 + 2 * LEASE, allowInterrupted: false }];
      return async (stores) => [...(await stores.runs.renew({ holders, now: T0 }))];
    },
  },
  {
    method: 'runs.claimOrphans',
    prepare: async (s) => {
      await s.running();
      const now = T0 + 10 * LEASE;
      const input = {
        owner: 'owner-b',
        tokens: ['x', 'y'],
        leaseExpiresAt: now + LEASE,
        graceMs: 0,
        deadOwners: [],
        skipRunIds: [],
        now,
      };
      return (stores) => stores.runs.claimOrphans(input);
    },
    // The fresh lease holds the sweeper off its own claim; the row comes up again when that lease runs out.
    again: [],
  },
  {
    method: 'runs.release',
    prepare: async (s) => {
      await s.ended('success');
      const { fence } = await s.admit({ kind: 'artifact_write' });
      return (stores) => stores.runs.release(fence);
    },
    again: { outcome: 'fenced' },
  },
  {
    method: 'runs.relinquish',
    prepare: async (s) => {
      const { fence } = await s.running();
      return (stores) => stores.runs.relinquish(fence);
    },
  },
  {
    method: 'runs.remove',
    prepare: async (s) => {
      const { run } = await s.ended('success');
      return (stores) => stores.runs.remove({ runId: run.runId, userId: 'user' });
    },
    again: 'not_found',
  },
  {
    method: 'log.append',
    prepare: async (s) => {
      const { fence } = await s.running();
      const facts = [s.fact('x'), s.fact('y')];
      return (stores) => stores.log.append({ fence, threadId: 'thread', facts, now: T0 });
    },
  },
  {
    method: 'journal.begin',
    prepare: async (s) => {
      const { fence } = await s.running();
      return (stores) =>
        stores.journal.begin({ fence, key: KEY, toolCallId: 'c', name: 'bash', attempt: 1, again: false, now: T0 });
    },
  },
  {
    method: 'journal.retract',
    prepare: async (s) => {
      const { fence } = await s.running();
      await s.a.journal.begin({ fence, key: KEY, toolCallId: 'c', name: 'bash', attempt: 1, again: false, now: T0 });
      return (stores) => stores.journal.retract({ fence, key: KEY });
    },
  },
  {
    method: 'journal.finish',
    prepare: async (s) => {
      const { fence } = await s.running();
      await s.a.journal.begin({ fence, key: KEY, toolCallId: 'c', name: 'bash', attempt: 1, again: false, now: T0 });
      return (stores) => stores.journal.finish({ fence, key: KEY, outcome: 'ok', result: packed('done'), now: T0 });
    },
  },
  {
    method: 'checkpoints.put',
    prepare: async (s) => {
      const { fence } = await s.running();
      return (stores) => stores.checkpoints.put(checkpointPut(fence, 'c1'));
    },
  },
  {
    method: 'checkpoints.putWrites',
    prepare: async (s) => {
      const { fence } = await s.running();
      await s.a.checkpoints.put(checkpointPut(fence, 'c1'));
      return (stores) =>
        stores.checkpoints.putWrites({
          fence,
          threadId: 'thread',
          ns: '',
          checkpointId: 'c1',
          taskId: 'task',
          taskPath: 'path',
          replace: false,
          writes: [{ index: 0, channel: 'text', type: 'json', value: packed('written') }],
          facts: [s.fact('update')],
          now: T0,
        });
    },
  },
  {
    method: 'checkpoints.rollback',
    prepare: async (s) => {
      const { fence } = await s.running();
      await s.a.checkpoints.put(checkpointPut(fence, 'c1'));
      await s.a.checkpoints.put(checkpointPut(fence, 'c2'));
      return (stores) => stores.checkpoints.rollback({ fence, threadId: 'thread', checkpointId: 'c1', now: T0 });
    },
  },
];

/**
 * Every write behind the faults of a network: a call that failed before it arrived changed nothing; a call whose answer was
 * lost and that is repeated, or that arrives twice, has the effect of one call.
 */
export function retryContract(name: string, factory: StoresFactory): void {
  describe(`repeated calls: ${name}`, () => {
    const scene = scenes(factory);
    for (const [number, one] of CASES.entries()) {
      const title = `${one.method} (${number + 1})`;

      test(`${title}: a call that did not arrive changed nothing`, async () => {
        const s = await scene();
        const call = await one.prepare(s);
        const before = await s.picture();
        const faulty = withFaults(s.a, faultOnce('fail-before', one.method));
        await expect(call(faulty)).rejects.toMatchObject({ code: 'store_unavailable', retryable: true });
        expect(await s.picture()).toEqual(before);
      });

      test(`${title}: repeated after a lost answer, and doubled, it is one call`, verifies('RE-03'), async () => {
        const plain = await scene();
        const first = await (await one.prepare(plain))(plain.a);
        const once = await plain.picture();

        for (const fault of ['fail-after', 'duplicate'] as const) {
          const s = await scene();
          const call = await one.prepare(s);
          const faulty = withFaults(s.a, faultOnce(fault, one.method));
          const answer = await retried(() => call(faulty));
          expect(await s.picture()).toEqual(once);
          if (one.again === undefined) expect(answer).toEqual(first);
          else if (typeof one.again === 'string' || Array.isArray(one.again)) expect(answer).toEqual(one.again);
          else expect(answer).toMatchObject(one.again);
        }
      });
    }

    test('an admission without a key whose answer was lost leaves one run, which the conflict names', async () => {
      const s = await scene();
      const input = s.admission();
      const faulty = withFaults(s.a, faultOnce('fail-after', 'runs.admit'));
      expect(await retried(() => faulty.runs.admit(input))).toMatchObject({
        outcome: 'conflict',
        reason: 'busy',
        active: { runId: input.runId, status: 'pending' },
      });
      expect(await s.history()).toEqual([`${input.runId} pending 0`]);
    });
  });
}
