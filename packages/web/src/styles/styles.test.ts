import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const PAIRS = [
  ['text', 'ground'],
  ['text', 'side'],
  ['text', 'raised'],
  ['text', 'sunk'],
  ['text', 'mine'],
  ['soft', 'ground'],
  ['soft', 'side'],
  ['soft', 'raised'],
  ['soft', 'sunk'],
  ['accent', 'ground'],
  ['accent', 'side'],
  ['accent', 'raised'],
  ['accent', 'mine'],
  ['on-accent', 'accent'],
  ['warn', 'warn-ground'],
  ['warn', 'raised'],
  ['bad', 'bad-ground'],
  ['bad', 'ground'],
  ['bad', 'raised'],
  ['good', 'raised'],
  ['good', 'ground'],
] as const;

const EDGES = [
  ['edge', 'ground'],
  ['edge', 'raised'],
] as const;

test.each([
  { what: 'text', least: 4.5, pairs: PAIRS },
  { what: 'the edge of a field', least: 3, pairs: EDGES },
])('$what stands out from its ground in both lights (WCAG AA, $least : 1)', async ({ least, pairs }) => {
  const css = await readFile(join(import.meta.dirname, 'base.css'), 'utf8');
  const colours = new Map(
    [...css.matchAll(/--([\w-]+):\s*light-dark\((#[0-9a-f]{6}),\s*(#[0-9a-f]{6})\)/g)].map(([, name, light, dark]) => [
      name,
      [light, dark],
    ]),
  );
  for (const [text, ground] of pairs) {
    for (const light of [0, 1]) {
      const pair = [colours.get(text)?.[light], colours.get(ground)?.[light]];
      const [one, other] = pair.map((colour) => luminance(colour ?? ''));
      const ratio = (Math.max(one ?? 0, other ?? 0) + 0.05) / (Math.min(one ?? 0, other ?? 0) + 0.05);
      expect(ratio, `${text} on ${ground}, ${light === 0 ? 'light' : 'dark'}`).toBeGreaterThanOrEqual(least);
    }
  }
});

function luminance(colour: string): number {
  const [red = Number.NaN, green = Number.NaN, blue = Number.NaN] = [1, 3, 5].map((start) => {
    const value = Number.parseInt(colour.slice(start, start + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
