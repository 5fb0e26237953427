import type { Random } from '@reindeer/protocol';

/** A source of randomness that gives the same sequence for the same seed (an integer). Not for secrets. */
export interface SeededRandom extends Random {
  /** An integer in [0, bound). */
  below(bound: number): number;
  /** True with the given probability. */
  chance(probability: number): boolean;
  /** One of the items; the list must not be empty. */
  pick<T>(items: readonly [T, ...T[]] | readonly T[]): T;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** A 32-bit generator (additive step, two rounds of mixing); its period is far beyond what one seed needs. */
export function seededRandom(seed: number): SeededRandom {
  let state = Math.imul(seed ^ 0x5851f42d, 0x9e3779b1) | 0;
  const word = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  /** Two bytes of a word as four digits. */
  const digits = (bits: number): string => (HEX[(bits >>> 8) & 255] ?? '') + (HEX[bits & 255] ?? '');
  const next = (): number => word() / 4_294_967_296;
  return {
    next,
    uuid: () => {
      const [a, b, c, d] = [word(), word(), word(), word()];
      const version = digits((b & 0x0fff) | 0x4000);
      const variant = digits(((c >>> 16) & 0x3fff) | 0x8000);
      return `${digits(a >>> 16)}${digits(a)}-${digits(b >>> 16)}-${version}-${variant}-${digits(c)}${digits(d >>> 16)}${digits(d)}`;
    },
    below: (bound) => Math.floor(next() * bound),
    chance: (probability) => next() < probability,
    pick: (items) => {
      const item = items[Math.floor(next() * items.length)];
      if (item === undefined) throw new RangeError('pick() needs at least one item.');
      return item;
    },
  };
}
