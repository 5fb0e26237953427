import { verifies } from '@reindeer/testkit';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { StreamStart } from './index.ts';
import { formatCursor, parseCursor, resolveCursor } from './index.ts';

const epoch = fc.stringMatching(/^[a-z0-9]{1,16}$/);
const cursor = fc.record({ epoch, seq: fc.nat({ max: 999_999_999 }), frame: fc.nat({ max: 999_999_999 }) });
const log = fc
  .record({ epoch, head: fc.nat({ max: 200 }), pruned: fc.nat({ max: 200 }), first: fc.nat({ max: 200 }) })
  .map(({ epoch: name, head, pruned, first }) => ({
    epoch: name,
    head,
    prunedThrough: Math.min(pruned, head),
    firstSeqOfRun: 1 + Math.min(first, head),
  }));

/** The facts that a reader gets who obeys the answer: those of the run that are retained, after the given position. */
function delivered(start: StreamStart, from: { head: number; prunedThrough: number; firstSeqOfRun: number }): number[] {
  const after = start.from === 'after' ? start.seq : 0;
  const first = Math.max(from.firstSeqOfRun, from.prunedThrough + 1, after + 1);
  return Array.from({ length: Math.max(0, from.head - first + 1) }, (_, n) => first + n);
}

describe('cursor', () => {
  test('what is formatted parses to itself', async () => {
    await fc.assert(
      fc.property(cursor, (one) => {
        expect(parseCursor(formatCursor(one))).toEqual(one);
      }),
    );
  });

  test('what parses formats to itself, leading zeros aside', async () => {
    await fc.assert(
      fc.property(cursor, (one) => {
        const text = formatCursor(one);
        const parsed = parseCursor(text);
        expect(parsed === null ? null : formatCursor(parsed)).toBe(text);
      }),
    );
    expect(formatCursor({ epoch: 'e', seq: 7, frame: 0 })).toBe('e-7');
    expect(formatCursor({ epoch: 'e', seq: 7, frame: 2 })).toBe('e-7.2');
  });

  test('anything else is no cursor, and never an error', async () => {
    for (const text of [
      null,
      undefined,
      '',
      '-1',
      '0',
      'e',
      'e-',
      '-7',
      'e-7.',
      'e-7.x',
      'E-7',
      'e-7 ',
      ' e-7',
      'e--7',
      'e-1e3',
      'e-7\n',
      '🦌-7',
      `${'e'.repeat(17)}-7`,
      `e-${'9'.repeat(16)}`,
    ])
      expect(parseCursor(text)).toBeNull();
    await fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const parsed = parseCursor(text);
        if (parsed !== null) expect(Number.isSafeInteger(parsed.seq) && Number.isSafeInteger(parsed.frame)).toBe(true);
      }),
    );
  });
});

describe('resolveCursor', () => {
  test('a retained position continues exactly behind it', verifies('RS-02'), async () => {
    await fc.assert(
      fc.property(log, fc.nat({ max: 200 }), fc.nat({ max: 9 }), (one, seq, frame) => {
        fc.pre(seq <= one.head && seq >= one.prunedThrough);
        const start = resolveCursor(formatCursor({ epoch: one.epoch, seq, frame }), one);
        expect(start).toEqual({ from: 'after', seq, frame });
        for (const fact of delivered(start, one)) expect(fact).toBeGreaterThan(seq);
      }),
    );
  });

  test('a position whose successors were pruned is a gap, before anything is replayed', verifies('RS-03'), async () => {
    await fc.assert(
      fc.property(log, fc.nat({ max: 200 }), (one, seq) => {
        fc.pre(seq < one.prunedThrough);
        expect(resolveCursor(formatCursor({ epoch: one.epoch, seq, frame: 0 }), one)).toEqual({
          from: 'gap',
          reason: 'pruned',
        });
      }),
    );
  });

  test('another epoch is a gap, whatever its number', async () => {
    await fc.assert(
      fc.property(log, cursor, (one, foreign) => {
        fc.pre(foreign.epoch !== one.epoch);
        expect(resolveCursor(formatCursor(foreign), one)).toEqual({ from: 'gap', reason: 'other_epoch' });
      }),
    );
  });

  test('an unparsable, unknown or future id means all facts of the run', async () => {
    await fc.assert(
      fc.property(log, fc.nat({ max: 50 }), (one, beyond) => {
        const future = formatCursor({ epoch: one.epoch, seq: one.head + 1 + beyond, frame: 0 });
        for (const text of [null, undefined, '', '-1', '0', 'text', future]) {
          const start = resolveCursor(text, one);
          const complete = one.firstSeqOfRun > one.prunedThrough;
          expect(start).toEqual(complete ? { from: 'start' } : { from: 'gap', reason: 'pruned' });
        }
      }),
    );
  });

  test('no fact is ever skipped in silence: what is missing was announced as a gap', verifies('RS-03'), async () => {
    const id = fc.oneof(
      fc.constantFrom('', '-1', 'x'),
      fc.nat({ max: 220 }).map((seq) => `=${seq}`),
      cursor.map(formatCursor),
    );
    await fc.assert(
      fc.property(log, id, (one, raw) => {
        const text = raw.startsWith('=') ? `${one.epoch}-${raw.slice(1)}` : raw;
        const start = resolveCursor(text, one);
        if (start.from === 'gap') return;
        const seen = parseCursor(text);
        const from =
          start.from === 'after' && seen !== null ? Math.max(seen.seq + 1, one.firstSeqOfRun) : one.firstSeqOfRun;
        const wanted = Array.from({ length: Math.max(0, one.head - from + 1) }, (_, n) => from + n);
        expect(delivered(start, one)).toEqual(wanted);
      }),
      { numRuns: 2000 },
    );
  });
});
