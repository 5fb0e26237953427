import type { Fence } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import type { Scene, StoresFactory } from './scene.ts';
import { packed, scenes, T0 } from './scene.ts';

/** What every tool journal must do (D7). */
export function journalContract(name: string, factory: StoresFactory): void {
  describe(`tool journal: ${name}`, () => {
    const scene = scenes(factory);
    const key = (index = 0, messageId = 'm', threadId = 'thread') => ({ threadId, messageId, index });
    type Begin = Partial<Parameters<Scene['a']['journal']['begin']>[0]>;
    const begin = (s: Scene, fence: Fence, part: Begin = {}) =>
      s.a.journal.begin({
        fence,
        key: key(),
        toolCallId: 'call',
        name: 'bash',
        attempt: 1,
        again: false,
        now: T0,
        ...part,
      });
    const finish = (
      s: Scene,
      fence: Fence,
      value: unknown,
      part: Partial<Parameters<Scene['a']['journal']['finish']>[0]> = {},
    ) => s.a.journal.finish({ fence, key: key(), outcome: 'ok', result: packed(value), now: T0 + 1, ...part });
    const takeOver = async (s: Scene, runId: string): Promise<Fence> => {
      const owner = (await s.a.runs.get(runId))?.owner ?? '';
      const [claimed] = await s.claim({ deadOwners: [owner], owner: s.id('owner') });
      const fence = { runId, token: claimed?.token ?? '' };
      await s.start(fence);
      return fence;
    };

    test('a call begins, ends, and never begins again', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      expect(await begin(s, fence)).toEqual({ outcome: 'begin' });
      expect(await s.b.journal.unfinished('thread')).toEqual([{ key: key(), name: 'bash', attempt: 1, startedAt: T0 }]);
      const result = {
        json: '[{"$m":"AAAAAAAAAAAAAAAAAAAAAA"}]',
        messages: [{ hash: 'AAAAAAAAAAAAAAAAAAAAAA', id: 'r1', body: '{"type":"tool","id":"r1","content":"done"}' }],
      };
      expect(await finish(s, fence, null, { result })).toEqual({ outcome: 'ok', result });
      expect(await s.a.journal.unfinished('thread')).toEqual([]);
      for (const again of [false, true])
        expect(await begin(s, fence, { again })).toEqual({ outcome: 'finished', result });
      // A later attempt, and a later run on the same thread, find the result too.
      const later = await takeOver(s, run.runId);
      expect(await begin(s, later, { attempt: 2, again: true })).toEqual({ outcome: 'finished', result });
      await s.finalize(later, 'error');
      const next = await s.running();
      expect(await begin(s, next.fence)).toEqual({ outcome: 'finished', result });
      expect((await s.history()).filter((line) => line.includes('bash'))).toEqual([
        `${run.runId} bash started 1`,
        `${run.runId} bash finished ok`,
      ]);
    });

    test('the first end stays, and is what every later end is told', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await begin(s, fence);
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, n) => finish(s, fence, `result ${n}`, { outcome: n === 0 ? 'ok' : 'error' })),
      );
      const first = answers[0];
      for (const answer of answers) expect(answer).toEqual(first);
      expect((await s.history()).filter((line) => line.includes('finished'))).toHaveLength(1);
      const later = await takeOver(s, run.runId);
      expect(await finish(s, later, 'other', { outcome: 'unknown' })).toEqual(first);
      expect((await s.history()).filter((line) => line.includes('finished'))).toHaveLength(1);
    });

    test('a call whose end was never recorded is unfinished for the next attempt, however often it asks', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await begin(s, fence, { now: T0 + 3 });
      const second = await takeOver(s, run.runId);
      for (let n = 0; n < 2; n += 1)
        expect(await begin(s, second, { attempt: 2, now: T0 + 9 })).toEqual({
          outcome: 'unfinished',
          startedAt: T0 + 3,
          attempt: 1,
        });
      expect((await s.history()).filter((line) => line.includes('bash'))).toEqual([`${run.runId} bash started 1`]);
      // Its outcome is unknown, and that is recorded like any other end.
      expect(await finish(s, second, 'unknown', { outcome: 'unknown' })).toEqual({
        outcome: 'ok',
        result: packed('unknown'),
      });
      expect(await begin(s, second, { attempt: 2, again: true })).toEqual({
        outcome: 'finished',
        result: packed('unknown'),
      });
    });

    test('a repeatable call begins again, once per attempt', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await begin(s, fence);
      const second = await takeOver(s, run.runId);
      expect(await begin(s, second, { attempt: 2, again: true, now: T0 + 5 })).toEqual({ outcome: 'begin' });
      expect(await s.a.journal.unfinished('thread')).toEqual([
        { key: key(), name: 'bash', attempt: 2, startedAt: T0 + 5 },
      ]);
      const third = await takeOver(s, run.runId);
      expect(await begin(s, third, { attempt: 3 })).toEqual({ outcome: 'unfinished', startedAt: T0 + 5, attempt: 2 });
      expect(await begin(s, third, { attempt: 3, again: true })).toEqual({ outcome: 'begin' });
      await finish(s, third, 'done');
      expect((await s.history()).filter((line) => line.includes('bash'))).toEqual([
        `${run.runId} bash started 1`,
        `${run.runId} bash started 2`,
        `${run.runId} bash started 3`,
        `${run.runId} bash finished ok`,
      ]);
    });

    test('a begin that was taken back is none, for every later attempt and run; an end stays', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await begin(s, fence);
      await begin(s, fence, { key: key(1) });
      const retract = (held: Fence, index = 0) => s.a.journal.retract({ fence: held, key: key(index) });
      expect(await retract(fence)).toEqual({ outcome: 'ok' });
      expect(await retract(fence)).toEqual({ outcome: 'ok' });
      expect((await s.a.journal.unfinished('thread')).map((call) => call.key.index)).toEqual([1]);
      const second = await takeOver(s, run.runId);
      expect(await retract(fence, 1)).toEqual({ outcome: 'fenced' });
      expect(await begin(s, second, { attempt: 2 })).toEqual({ outcome: 'begin' });
      expect(await begin(s, second, { key: key(1), attempt: 2 })).toMatchObject({ outcome: 'unfinished' });
      await finish(s, second, 'done');
      expect(await retract(second)).toEqual({ outcome: 'ok' });
      expect(await begin(s, second)).toEqual({ outcome: 'finished', result: packed('done') });
      const other = await s.running({ threadId: 'other' });
      expect(await retract(other.fence, 1)).toEqual({ outcome: 'fenced' });
    });

    test('a begin whose answer was lost is the same begin', async () => {
      const s = await scene();
      const { run, fence } = await s.running();
      await begin(s, fence);
      expect(await begin(s, fence, { now: T0 + 4 })).toEqual({ outcome: 'begin' });
      expect(await s.a.journal.unfinished('thread')).toMatchObject([{ attempt: 1 }]);
      expect((await s.history()).filter((line) => line.includes('bash'))).toEqual([`${run.runId} bash started 1`]);
    });

    test('calls are told apart by message and index, not by the provider’s id', async () => {
      const s = await scene();
      const { fence } = await s.running();
      const keys = [key(0), key(1), key(0, 'n')];
      for (const [n, one] of keys.entries())
        expect(await begin(s, fence, { key: one, toolCallId: n === 2 ? null : 'same', now: T0 + n })).toEqual({
          outcome: 'begin',
        });
      await finish(s, fence, 'second', { key: key(1) });
      expect((await s.a.journal.unfinished('thread')).map((call) => call.key)).toEqual([key(0), key(0, 'n')]);
      expect(await begin(s, fence, { key: key(1) })).toEqual({ outcome: 'finished', result: packed('second') });
    });

    test('threads have journals of their own', async () => {
      const s = await scene();
      const one = await s.running({ threadId: 'one' });
      const two = await s.running({ threadId: 'two' });
      expect(await begin(s, one.fence, { key: key(0, 'm', 'one') })).toEqual({ outcome: 'begin' });
      expect(await begin(s, two.fence, { key: key(0, 'm', 'two') })).toEqual({ outcome: 'begin' });
      expect((await s.a.journal.unfinished('one')).map((call) => call.key.threadId)).toEqual(['one']);
      expect(await s.a.journal.unfinished('nowhere')).toEqual([]);
    });

    test('lists what is unfinished oldest first', async () => {
      const s = await scene();
      const { fence } = await s.running();
      for (const [index, now] of [T0 + 5, T0 + 1, T0 + 3].entries()) await begin(s, fence, { key: key(index), now });
      expect((await s.a.journal.unfinished('thread')).map((call) => call.key.index)).toEqual([1, 2, 0]);
    });

    for (const outcome of ['ok', 'error', 'unknown', 'refused'] as const)
      test(`records the outcome ${outcome} with name and ids`, async () => {
        const s = await scene();
        const { fence } = await s.running();
        await begin(s, fence, { key: key(3), toolCallId: null, name: 'write_file' });
        await finish(s, fence, 'x', { key: key(3), outcome });
        const { facts } = await s.a.log.read({ threadId: 'thread', runId: null, afterSeq: 2, limit: 5, maxBytes: 1e6 });
        const about = { messageId: 'm', index: 3, toolCallId: null, name: 'write_file' };
        expect(facts.map((fact) => fact.body)).toEqual([
          { kind: 'tool-started', ...about, attempt: 1 },
          { kind: 'tool-finished', ...about, outcome },
        ]);
      });
  });
}
