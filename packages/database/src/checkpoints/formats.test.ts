import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeHead, decodeMetadata, encodeHead, encodeMetadata, shapeOf } from './head.ts';
import { idFromBytes, idToBytes } from './ids.ts';
import { appendList, hashesIn, isMessageList, rangesIn, toInside, toOutside } from './numbers.ts';
import {
  decodeWrites,
  encodeWrites,
  longPath,
  type StoredWrite,
  shapeOfBody,
  shapeOfWrites,
  shortPath,
} from './writes.ts';

const hashOf = (number: number): string => String(number).padStart(22, 'h');
const numberOf = (hash: string): number => Number(hash.replaceAll('h', ''));
const listOf = (numbers: readonly number[]): string =>
  JSON.stringify(numbers.map((number) => ({ $m: hashOf(number) })));

describe('messages as numbers', () => {
  const numbers = fc.array(fc.integer({ min: 1, max: 12 }), { maxLength: 20 });
  const value = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.string(),
      fc.constantFrom('{"$m":7}', '{"$m":[1,2]}', '=7', '{"$m":"hhhhhhhhhhhhhhhhhhhhh1"}'),
      fc.integer({ min: 1, max: 9 }).map((number) => ({ $m: hashOf(number) })),
      fc.array(tie('value'), { maxLength: 6 }),
      fc.dictionary(
        fc.string().filter((key) => key !== '$m'),
        tie('value'),
        { maxKeys: 4 },
      ),
    ),
  })).value;

  test('any value comes back', () => {
    fc.assert(
      fc.property(value, (given) => {
        const text = JSON.stringify(given);
        expect(toOutside(toInside(text, numberOf), hashOf)).toBe(text);
        expect(hashesIn(toInside(text, numberOf))).toEqual([]);
      }),
    );
  });

  test('a list that continues another is the list', () => {
    fc.assert(
      fc.property(numbers, numbers, fc.nat(20), (base, tail, keep) => {
        const joined = appendList(toInside(listOf(base), numberOf), keep, toInside(listOf(tail), numberOf));
        const expected = keep > base.length ? null : listOf([...base.slice(0, keep), ...tail]);
        expect(joined === null ? null : toOutside(joined, hashOf)).toBe(expected);
      }),
    );
  });

  test('a history that only grows is one range', () => {
    const history = Array.from({ length: 5000 }, (_, index) => index + 1);
    const text = toInside(listOf(history), numberOf);
    expect(text).toBe('[{"$m":[1,5000]}]');
    expect(rangesIn(text)).toEqual([[1, 5000]]);
  });

  test('only lists of nothing but messages can be continued', () => {
    expect(isMessageList('[]')).toBe(true);
    expect(isMessageList(listOf([1, 2]))).toBe(true);
    expect(isMessageList(JSON.stringify([{ $m: hashOf(1) }, 'text']))).toBe(false);
    expect(isMessageList(JSON.stringify({ $m: hashOf(1) }))).toBe(false);
    expect(appendList('[{"$m":1},"text"]', 1, '[]')).toBeNull();
    expect(appendList('null', 0, '[]')).toBeNull();
  });
});

describe('checkpoints without values', () => {
  const version = fc.oneof(fc.string({ minLength: 1 }), fc.nat());
  const versions = fc.dictionary(fc.string(), version, { maxKeys: 6 });
  const usual = fc.record({
    v: fc.constantFrom(1, 4),
    id: fc.uuid(),
    ts: fc
      .date({ noInvalidDate: true, min: new Date(0), max: new Date('9999-01-01') })
      .map((date) => date.toISOString()),
    channel_versions: versions,
    versions_seen: fc.dictionary(fc.string(), versions, { maxKeys: 5 }),
  });

  test('come back', () => {
    fc.assert(
      fc.property(usual, (checkpoint) => {
        const encoded = encodeHead(JSON.stringify(checkpoint), checkpoint.id);
        if ('whole' in encoded) throw new Error('this one fits');
        const head = encoded.head(7);
        expect(shapeOf(head)).toBe(7);
        expect(JSON.parse(decodeHead(head, encoded.shape, checkpoint.id))).toEqual(
          JSON.parse(JSON.stringify(checkpoint)),
        );
      }),
    );
  });

  test.each([
    ['another time format', { ts: '2026-01-01' }],
    ['a field of its own', { pending_sends: [] }],
    ['another id', { id: 'other' }],
    ['no versions', { channel_versions: undefined }],
  ])('are kept as they came with %s', (_name, part) => {
    const checkpoint = {
      v: 4,
      id: 'id',
      ts: '2026-01-01T00:00:00.000Z',
      channel_versions: {},
      versions_seen: {},
      ...part,
    };
    const text = JSON.stringify(checkpoint);
    const encoded = encodeHead(text, 'id');
    expect(encoded).toEqual({ whole: text });
    expect(decodeHead(text, '', 'id')).toBe(text);
  });

  test('metadata comes back', () => {
    for (const metadata of [
      { source: 'loop', step: 12, parents: {} },
      { source: 'input', step: -1, parents: {} },
      { source: 'loop', step: 12, parents: { '': 'x' } },
      { source: 'a b', step: 1, parents: {} },
      { step: 1, source: 'loop', parents: {} },
      {},
    ]) {
      const text = JSON.stringify(metadata);
      expect(decodeMetadata(encodeMetadata(text))).toBe(text);
    }
    expect(encodeMetadata('{"source":"loop","step":12,"parents":{}}')).toBe('loop 12');
  });
});

describe('pending writes', () => {
  const write: fc.Arbitrary<StoredWrite> = fc.record({
    index: fc.integer({ min: -4, max: 20 }),
    channel: fc.string(),
    kind: fc.constantFrom(0, 1),
    value: fc.string({ unit: 'binary' }),
  });

  test('come back', () => {
    fc.assert(
      fc.property(fc.array(write), (writes) => {
        const body = encodeWrites(writes, 3);
        expect(shapeOfBody(body)).toBe(3);
        expect(decodeWrites(body, shapeOfWrites(writes))).toEqual(writes);
      }),
    );
  });

  test('task paths come back, the usual ones short', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string().map((node) => `~__pregel_pull, ${node}`),
          fc
            .array(fc.nat())
            .map((path) => `~__pregel_push, ${path.map((n) => String(n).padStart(10, '0')).join(', ')}`),
          fc.string().map((rest) => `<${rest}`),
          fc.string().map((rest) => `~__pregel_push, ${rest}, 0000000001`),
        ),
        (path) => {
          expect(longPath(shortPath(path))).toBe(path);
        },
      ),
    );
    expect(shortPath('~__pregel_pull, model')).toBe('<model');
    expect(shortPath('~__pregel_push, 0000000000, 0000000012')).toBe('>0, 12');
  });
});

test('ids come back, and sort as their texts do', () => {
  const id = fc.oneof(fc.uuid(), fc.string({ minLength: 1 }), fc.constantFrom('ff000000-0000-6000-8000-000000000000'));
  fc.assert(
    fc.property(id, (given) => {
      expect(idFromBytes(idToBytes(given))).toBe(given);
    }),
  );
  fc.assert(
    fc.property(fc.uuid(), fc.uuid(), (a, b) => {
      fc.pre(!a.startsWith('ff00') && !b.startsWith('ff00'));
      expect(Math.sign(Buffer.compare(idToBytes(a), idToBytes(b)))).toBe(a < b ? -1 : a > b ? 1 : 0);
    }),
  );
});
