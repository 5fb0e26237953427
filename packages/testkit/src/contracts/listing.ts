import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { StoresFactory } from './scene.ts';
import { scenes, T0 } from './scene.ts';

/** Reading and removing runs. Part of `runStoreContract`. */
export function listingContract(factory: StoresFactory): void {
  const scene = scenes(factory);

  describe('list', () => {
    test('is newest first, also among equal times, and pages without overlap', async () => {
      const s = await scene();
      const ids: string[] = [];
      for (const now of [T0, T0, T0, T0 + 1, T0 + 1, T0 + 7]) ids.push((await s.ended('success', { now })).run.runId);
      const list = async (limit: number, offset: number) =>
        (await s.a.runs.list({ threadId: 'thread', userId: 'user', status: null, limit, offset })).map(
          (run) => run.runId,
        );
      expect(await list(1000, 0)).toEqual([...ids].reverse());
      expect([...(await list(2, 0)), ...(await list(2, 2)), ...(await list(2, 4))]).toEqual([...ids].reverse());
      expect(await list(5, 6)).toEqual([]);
    });

    test('knows owner and status', async () => {
      const s = await scene();
      const error = await s.ended('error');
      const running = await s.running();
      const list = async (status: 'error' | 'running' | 'pending' | null, userId = 'user', threadId = 'thread') =>
        (await s.a.runs.list({ threadId, userId, status, limit: 10, offset: 0 })).map((run) => run.runId);
      expect(await list('error')).toEqual([error.run.runId]);
      expect(await list('running')).toEqual([running.run.runId]);
      expect(await list('pending')).toEqual([]);
      expect(await list(null, 'intruder')).toEqual([]);
      expect(await list(null, 'user', 'elsewhere')).toEqual([]);
    });
  });

  describe('remove', () => {
    test('takes an acknowledged run of its user; its facts stay', async () => {
      const s = await scene();
      const ended = await s.ended('success', { idempotencyKey: 'key' });
      const running = await s.running();
      const history = await s.history();
      expect(await s.a.runs.remove({ runId: running.run.runId, userId: 'user' })).toBe('active');
      expect(await s.a.runs.remove({ runId: ended.run.runId, userId: 'intruder' })).toBe('not_found');
      expect(await s.a.runs.get(ended.run.runId)).not.toBeNull();
      expect(await s.a.runs.remove({ runId: ended.run.runId, userId: 'user' })).toBe('removed');
      expect(await s.a.runs.remove({ runId: ended.run.runId, userId: 'user' })).toBe('not_found');
      expect(await s.b.runs.get(ended.run.runId)).toBeNull();
      expect(await s.history()).toEqual(history);
    });

    test('never takes a superseded run that its holder still finalizes', async () => {
      const s = await scene();
      const { run } = await s.running();
      await s.admit({ multitaskStrategy: 'rollback' });
      expect(await s.a.runs.remove({ runId: run.runId, userId: 'user' })).toBe('active');
    });

    test('never takes a reservation', async () => {
      const s = await scene();
      const { run } = await s.admit({ kind: 'delete' });
      expect(await s.a.runs.remove({ runId: run.runId, userId: 'user' })).toBe('not_found');
      expect(await s.a.runs.get(run.runId)).not.toBeNull();
    });
  });

  test('a run id that exists is not admitted a second time', verifies('RA-04'), async () => {
    const s = await scene();
    const { run } = await s.ended('success');
    const other = await s.running();
    const before = await s.picture();
    await expect(
      s.a.runs.admit(s.admission({ runId: run.runId, multitaskStrategy: 'interrupt' })),
    ).rejects.toMatchObject({ code: 'conflict' });
    expect(await s.picture()).toEqual(before);
    expect(await s.a.runs.get(other.run.runId)).toMatchObject({ status: 'running' });
  });
}
