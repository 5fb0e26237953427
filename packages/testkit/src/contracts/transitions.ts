import type { TerminalStatus } from '@reindeer/protocol';
import { NO_DELIVERY } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { StoresFactory } from './scene.ts';
import { scenes, T0 } from './scene.ts';

/** Start, cancel and finalize. Part of `runStoreContract`. */
export function transitionContract(factory: StoresFactory): void {
  const scene = scenes(factory);

  describe('start', () => {
    test('makes a pending run running, once', async () => {
      const s = await scene();
      const { run, fence } = await s.admit();
      const first = await s.a.runs.start({ fence, checkpointBefore: 'c1', now: T0 + 1 });
      expect(first).toMatchObject({
        outcome: 'started',
        run: { status: 'running', attempt: 1, startedAt: T0 + 1, checkpointBefore: 'c1', owner: 'owner-a' },
      });
      // The answer was lost and the holder asks again: the same start, not a second one.
      expect(await s.a.runs.start({ fence, checkpointBefore: 'c2', now: T0 + 2 })).toMatchObject({
        outcome: 'started',
        run: { status: 'running', attempt: 1, checkpointBefore: 'c1' },
      });
      expect(await s.history()).toEqual([`${run.runId} pending 0`, `${run.runId} running 1`]);
    });

    test('of a later attempt keeps the rollback point and the time of the first', async () => {
      const s = await scene();
      const { run, fence } = await s.admit();
      await s.a.runs.start({ fence, checkpointBefore: '', now: T0 + 1 });
      const [claimed] = await s.claim({ deadOwners: ['owner-a'] });
      expect(claimed?.run).toMatchObject({ status: 'pending', attempt: 1, owner: 'owner-b' });
      const again = await s.b.runs.start({
        fence: { runId: run.runId, token: claimed?.token ?? '' },
        checkpointBefore: 'later',
        now: T0 + 9,
      });
      expect(again).toMatchObject({ outcome: 'started', run: { attempt: 2, checkpointBefore: '', startedAt: T0 + 1 } });
      expect(await s.history()).toEqual([`${run.runId} pending 0`, `${run.runId} running 1`, `${run.runId} running 2`]);
    });

    test('without a captured state before leaves none, and does not take a later one for it', async () => {
      const s = await scene();
      const { run, fence } = await s.admit();
      expect(await s.a.runs.start({ fence, checkpointBefore: null, now: T0 })).toMatchObject({
        outcome: 'started',
        run: { checkpointBefore: null, attempt: 1 },
      });
      const [claimed] = await s.claim({ deadOwners: ['owner-a'] });
      const again = { runId: run.runId, token: claimed?.token ?? '' };
      expect(await s.b.runs.start({ fence: again, checkpointBefore: null, now: T0 })).toMatchObject({
        outcome: 'started',
        run: { checkpointBefore: null, attempt: 2 },
      });
    });

    test('finds a cancel that came first, and a newer run that replaced it', verifies('RA-31'), async () => {
      const s = await scene();
      const one = await s.admit();
      await s.b.runs.requestCancel({ runId: one.run.runId, action: 'interrupt', now: T0 });
      expect(await s.a.runs.start({ fence: one.fence, checkpointBefore: '', now: T0 })).toMatchObject({
        outcome: 'cancelled',
        run: { status: 'pending', attempt: 0, cancelAction: 'interrupt', checkpointBefore: null },
      });
      await s.admit({ multitaskStrategy: 'interrupt' });
      expect(await s.a.runs.start({ fence: one.fence, checkpointBefore: '', now: T0 })).toMatchObject({
        outcome: 'cancelled',
        run: { status: 'interrupted', attempt: 0 },
      });
    });

    test('racing a cancel never leaves a started run without the cancel', verifies('RA-31', 'RL-14'), async () => {
      const s = await scene();
      for (let round = 0; round < 10; round += 1) {
        const { run, fence } = await s.admit({ threadId: `t${round}` });
        const start = () => s.a.runs.start({ fence, checkpointBefore: '', now: T0 });
        const cancel = () => s.b.runs.requestCancel({ runId: run.runId, action: 'interrupt', now: T0 });
        const [started, cancelled] = await Promise.all(
          round % 2 === 0 ? [start(), cancel()] : (([c, st]) => [st, c] as const)([cancel(), start()] as const),
        );
        expect(cancelled).toMatchObject({ outcome: 'recorded', action: 'interrupt' });
        const row = await s.a.runs.get(run.runId);
        expect(row).toMatchObject({
          cancelAction: 'interrupt',
          status: started.outcome === 'started' ? 'running' : 'pending',
        });
        expect(await s.finalize(fence, 'success')).toEqual({ outcome: 'cancel_requested', action: 'interrupt' });
      }
    });
  });

  describe('finalize', () => {
    for (const status of ['success', 'error', 'timeout', 'interrupted'] as const)
      test(
        `as ${status} is written once, with its fact, and nothing changes it`,
        verifies('RT-01', 'RT-02', 'RT-08', 'RT-27'),
        async () => {
          const s = await scene();
          const { run, fence } = await s.running();
          const usage = {
            inputTokens: 3,
            outputTokens: 4,
            totalTokens: 7,
            modelCalls: 1,
            by: { models: { m: { inputTokens: 3, outputTokens: 4, calls: 1 } }, callers: { subagent: 7 } },
          };
          const input = {
            fence,
            status,
            error: status === 'error' ? 'It broke' : null,
            stopReason: 'loop_capped',
            usage,
            unlessCancelled: true,
            receipt: { ...NO_DELIVERY, presented: 1, presented_paths: ['/mnt/user-data/outputs/a'] },
            now: T0 + 5,
          };
          const done = await s.a.runs.finalize(input);
          expect(done).toMatchObject({
            outcome: 'finalized',
            run: {
              status,
              acknowledged: true,
              owner: null,
              error: input.error,
              stopReason: 'loop_capped',
              usage,
              endedAt: T0 + 5,
            },
          });
          expect(await s.a.runs.active('thread')).toEqual([]);
          const { facts } = await s.a.log.read({
            threadId: 'thread',
            runId: run.runId,
            afterSeq: 2,
            limit: 9,
            maxBytes: 1e6,
          });
          expect(facts.map((fact) => fact.body)).toEqual([
            { kind: 'delivery', receipt: input.receipt },
            {
              kind: 'run',
              status,
              attempt: 1,
              terminal: true,
              stopReason: 'loop_capped',
              ...(input.error === null ? {} : { error: input.error }),
            },
          ]);
          const before = await s.picture();
          for (const other of ['success', 'error', 'timeout', 'interrupted'] as const)
            expect(
              await s.a.runs.finalize({ ...input, status: other, error: 'x', unlessCancelled: false, now: T0 + 9 }),
            ).toMatchObject({ outcome: 'terminal', run: { status, acknowledged: true } });
          expect(await s.a.runs.requestCancel({ runId: run.runId, action: 'rollback', now: T0 + 9 })).toMatchObject({
            outcome: 'terminal',
            run: { status },
          });
          expect(await s.claim({ now: T0 + 1e9 })).toEqual([]);
          expect((await s.a.runs.start({ fence, checkpointBefore: '', now: T0 })).outcome).toBe('fenced');
          expect(await s.picture()).toEqual(before);
        },
      );

    test('racing a cancel has one winner', verifies('RL-14'), async () => {
      const s = await scene();
      for (let round = 0; round < 20; round += 1) {
        const { run, fence } = await s.running({ threadId: `t${round}` });
        const finalize = () => s.finalize(fence, 'success');
        const cancel = () => s.b.runs.requestCancel({ runId: run.runId, action: 'rollback', now: T0 });
        const calls = round % 2 === 0 ? [finalize(), cancel()] : [cancel(), finalize()];
        const outcomes = (await Promise.all(calls)).map((result) => result.outcome).sort();
        const row = await s.a.runs.get(run.runId);
        if (row?.status === 'success') expect(outcomes).toEqual(['finalized', 'terminal']);
        else expect(outcomes).toEqual(['cancel_requested', 'recorded']);
        expect(row?.cancelAction).toBe(row?.status === 'success' ? null : 'rollback');
      }
    });

    test('may overrule a recorded cancel when the holder says so', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await s.a.runs.requestCancel({ runId: run.runId, action: 'interrupt', now: T0 });
      expect(await s.finalize(fence, 'interrupted', { unlessCancelled: true })).toEqual({
        outcome: 'cancel_requested',
        action: 'interrupt',
      });
      expect(await s.finalize(fence, 'interrupted', { unlessCancelled: false })).toMatchObject({
        outcome: 'finalized',
      });
    });

    test(
      'a superseded run keeps the authority for one move: to error, or to stay interrupted',
      verifies('RT-01'),
      async () => {
        for (const status of ['error', 'interrupted'] as const) {
          const s = await scene();
          const first = await s.running();
          const second = await s.admit({ multitaskStrategy: 'rollback' });
          for (const refused of ['success', 'timeout'] as const)
            expect(await s.finalize(first.fence, refused, { unlessCancelled: false })).toEqual({
              outcome: 'cancel_requested',
              action: 'rollback',
            });
          const error = status === 'error' ? { error: 'Rolled back by user' } : {};
          expect(await s.finalize(first.fence, status, { ...error, unlessCancelled: true })).toMatchObject({
            outcome: 'finalized',
            // RT-08: a text that the holder does not give keeps what stands.
            run: { status, acknowledged: true, owner: null, error: error.error ?? 'Cancelled by newer run' },
          });
          expect(await s.finalize(first.fence, 'error', { error: 'again' })).toMatchObject({
            outcome: 'terminal',
            run: { status },
          });
          expect((await s.history()).filter((line) => line.includes(' end '))).toEqual([
            `${first.run.runId} ${status} end 1`,
          ]);
          expect((await s.a.runs.active('thread')).map((run) => run.runId)).toEqual([second.run.runId]);
        }
      },
    );

    test('concurrent finalizers of one holder write one end', verifies('RT-01', 'RT-27'), async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      const statuses: TerminalStatus[] = ['success', 'error', 'timeout', 'interrupted', 'error', 'success'];
      const results = await Promise.all(statuses.map((status) => s.finalize(fence, status)));
      expect(results.filter((result) => result.outcome === 'finalized')).toHaveLength(1);
      expect(results.filter((result) => result.outcome === 'terminal')).toHaveLength(5);
      expect((await s.history()).filter((line) => line.includes(' end '))).toHaveLength(1);
      const row = await s.a.runs.get(run.runId);
      for (const result of results) if ('run' in result) expect(result.run.status).toBe(row?.status);
    });

    test('frees the thread for the next run', async () => {
      const s = await scene();
      const { fence } = await s.running();
      await s.finalize(fence, 'success');
      expect((await s.b.runs.admit(s.admission({ owner: 'owner-b' }))).outcome).toBe('admitted');
    });
  });

  describe('cancel', () => {
    test('the first action stays and is what every later one is told', verifies('RL-12'), async () => {
      const s = await scene();
      const { run } = await s.running();
      const first = await s.b.runs.requestCancel({ runId: run.runId, action: 'interrupt', now: T0 + 1 });
      expect(first).toMatchObject({
        outcome: 'recorded',
        action: 'interrupt',
        run: { status: 'running', cancelAction: 'interrupt', cancelRequestedAt: T0 + 1 },
      });
      expect(await s.a.runs.requestCancel({ runId: run.runId, action: 'rollback', now: T0 + 2 })).toMatchObject({
        outcome: 'recorded',
        action: 'interrupt',
        run: { cancelAction: 'interrupt', cancelRequestedAt: T0 + 1 },
      });
      const many = await Promise.all(
        (['rollback', 'interrupt', 'rollback'] as const).map((action) =>
          s.a.runs.requestCancel({ runId: run.runId, action, now: T0 + 3 }),
        ),
      );
      for (const result of many) expect(result).toMatchObject({ action: 'interrupt' });
    });

    test('of a superseded run is accepted and keeps the action of the supersession', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await s.admit({ multitaskStrategy: 'rollback' });
      expect(await s.a.runs.requestCancel({ runId: run.runId, action: 'interrupt', now: T0 })).toMatchObject({
        outcome: 'recorded',
        action: 'rollback',
        run: { status: 'interrupted' },
      });
      await s.finalize(fence, 'error');
      expect((await s.a.runs.requestCancel({ runId: run.runId, action: 'interrupt', now: T0 })).outcome).toBe(
        'terminal',
      );
    });

    test('of an unknown run says so', async () => {
      const s = await scene();
      expect(await s.a.runs.requestCancel({ runId: 'nobody', action: 'interrupt', now: T0 })).toEqual({
        outcome: 'not_found',
      });
    });
  });
}
