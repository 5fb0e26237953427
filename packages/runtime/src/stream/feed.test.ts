import type { Fact, FactPage, Log } from '@reindeer/protocol';
import { deferred, flush, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Bell } from '../common/waiting.ts';
import { RunFeed } from './feed.ts';

function scene() {
  const facts: Fact[] = [];
  let reads = 0;
  let gate: Promise<void> | null = null;
  const read: Log['read'] = async ({ afterSeq, limit }): Promise<FactPage> => {
    reads += 1;
    const page = facts.filter(({ seq }) => seq > afterSeq).slice(0, limit);
    const head = facts.at(-1)?.seq ?? 0;
    await gate;
    return { facts: page, head, prunedThrough: 0 };
  };
  const parts = { log: { read } as Log, threadId: 't', runId: 'r', bell: new Bell() };
  return {
    feed: new RunFeed({ ...parts, from: 0 }),
    parts,
    log: parts.log,
    reads: () => reads,
    hold: (promise: Promise<void> | null) => {
      gate = promise;
    },
    append: (n: number) => {
      for (let i = 0; i < n; i += 1) {
        facts.push({
          threadId: 't',
          seq: facts.length + 1,
          runId: 'r',
          at: 0,
          body: { kind: 'custom', ns: '', data: i },
        });
      }
    },
  };
}

/** Everything after a sequence, as a reader takes it. */
async function readAll(feed: RunFeed, from = 0): Promise<number[]> {
  const seqs: number[] = [];
  for (let at = from; ; ) {
    const { facts, exhausted } = await feed.after(at);
    seqs.push(...facts.map(({ seq }) => seq));
    at = facts.at(-1)?.seq ?? at;
    if (facts.length === 0 && exhausted) return seqs;
  }
}
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i + 1);

describe('the feed of a run', () => {
  test(
    'hints are wake-ups only: spurious ones bring nothing, a lost one loses nothing',
    verifies('RS-11'),
    async () => {
      const s = scene();
      s.append(5);
      expect(await readAll(s.feed)).toEqual(upTo(5));
      for (let i = 0; i < 10; i += 1) s.feed.hint();
      expect(await readAll(s.feed, 5)).toEqual([]);
      s.append(3);
      expect(await readAll(s.feed, 5)).toEqual([]);
      s.feed.hint();
      expect(await readAll(s.feed, 5)).toEqual([6, 7, 8]);
    },
  );

  test('readers at the tail share one read; one that is behind reads for itself', verifies('RS-21'), async () => {
    const s = scene();
    s.append(1_000);
    expect(await readAll(s.feed)).toEqual(upTo(1_000));
    const before = s.reads();
    s.append(1);
    s.feed.hint();
    const all = await Promise.all(Array.from({ length: 100 }, () => readAll(s.feed, 1_000)));
    for (const seqs of all) expect(seqs).toEqual([1_001]);
    expect(s.reads() - before).toBeLessThanOrEqual(2);
    expect(await readAll(s.feed, 0)).toEqual(upTo(1_001));
  });

  test('a fact that is written while the log is read is not missed', async () => {
    const s = scene();
    s.append(1);
    await readAll(s.feed);
    const gate = deferred();
    s.hold(gate.promise);
    s.feed.hint();
    const reading = s.feed.after(1);
    await flush();
    s.append(1);
    s.feed.hint();
    s.hold(null);
    gate.resolve();
    await reading;
    expect(await readAll(s.feed, 1)).toEqual([2]);
  });

  test('facts that were expected are there when their hint comes; more than was read is read', async () => {
    const s = scene();
    expect(await readAll(s.feed)).toEqual([]);
    s.feed.expect();
    expect(s.reads()).toBe(1);
    s.feed.readers = 1;
    s.append(3);
    const gate = deferred();
    s.hold(gate.promise);
    s.feed.expect();
    s.feed.expect();
    expect(s.reads()).toBe(2);
    s.feed.hint(3);
    gate.resolve();
    s.hold(null);
    expect(await readAll(s.feed)).toEqual(upTo(3));
    expect(s.reads()).toBe(2);
    // The next read is made before one of two facts is there: its hint brings the other.
    s.append(1);
    s.hold(gate.promise);
    s.feed.expect();
    s.append(1);
    s.feed.hint(4);
    s.feed.hint(5);
    expect(await readAll(s.feed, 3)).toEqual([4, 5]);
    // A hint that does not say how far the log reaches is never taken as answered by a read before it.
    const reads = s.reads();
    s.feed.expect();
    s.feed.hint();
    expect(await readAll(s.feed, 5)).toEqual([]);
    expect(s.reads()).toBe(reads + 2);
  });

  test('what a run opened with is not read again, unless the log is known to reach further', async () => {
    const s = scene();
    s.append(2);
    const opening = await s.log.read({ threadId: 't', runId: 'r', afterSeq: 0, limit: 10, maxBytes: 1 });
    const seated = (told: number, from = 0) => new RunFeed({ ...s.parts, from, opening, told });
    const reads = s.reads();
    expect(await readAll(seated(2))).toEqual(upTo(2));
    expect(s.reads()).toBe(reads);
    s.append(1);
    expect(await readAll(seated(3))).toEqual(upTo(3));
    expect(s.reads()).toBe(reads + 1);
    // Hints count as ever, and a reader that begins further on reads for itself.
    const feed = seated(2);
    feed.hint(3);
    expect(await readAll(feed)).toEqual(upTo(3));
    expect(await readAll(seated(3, 1), 1)).toEqual([2, 3]);
  });
});
