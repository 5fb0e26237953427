import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { OutputBuffer } from './output.ts';

function collect(cap: number, chunks: readonly Uint8Array[]) {
  const live: string[] = [];
  const buffer = new OutputBuffer(cap, (text) => live.push(text));
  for (const chunk of chunks) buffer.push(chunk);
  return { ...buffer.finish(), live: live.join(''), total: buffer.total };
}

test('keeps the beginning and the end, and says how much is missing', verifies('SL-12'), () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ minLength: 1, maxLength: 30, unit: 'grapheme-ascii' }), { maxLength: 30 }),
      fc.integer({ min: 2, max: 60 }),
      (parts, cap) => {
        const whole = parts.join('');
        const { output, truncatedBytes, total } = collect(
          cap,
          parts.map((part) => Buffer.from(part)),
        );
        expect(total).toBe(whole.length);
        expect(truncatedBytes).toBe(Math.max(0, whole.length - cap));
        if (truncatedBytes === 0) expect(output).toBe(whole);
        else {
          const notice = `\n[… ${truncatedBytes} bytes of output were dropped here …]\n`;
          const tail = Math.floor(cap / 2);
          expect(output).toBe(whole.slice(0, Math.ceil(cap / 2)) + notice + whole.slice(whole.length - tail));
        }
      },
    ),
  );
});

test('characters split over chunks are whole, also live; broken bytes do not fail', () => {
  const bytes = Buffer.from('grüße €');
  const { output, live } = collect(
    1_000,
    [...bytes].map((byte) => Uint8Array.of(byte)),
  );
  expect(output).toBe('grüße €');
  expect(live).toBe('grüße €');
  expect(collect(1_000, [Uint8Array.of(0x61, 0xff, 0x62)]).output).toBe('a\ufffdb');
});

test('the listener hears no more than the bound', () => {
  const { live } = collect(
    100,
    Array.from({ length: 100 }, () => Buffer.from('0123456789')),
  );
  expect(live.length).toBe(100);
});
