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

/** A 32-bit generator (additive step, two rounds of mixing); its period is far beyond what one seed needs. */
export function seededRandom(seed: number): SeededRandom {
  let state = Math.imul(seed ^ 0x5851f42d, 0x9e3779b1) | 0;
  const word = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  const hex = (): string => word().toString(16).padStart(8, '0');
  const next = (): number => word() / 4_294_967_296;
  return {
    next,
    uuid: () => {
      const digits = hex() + hex() + hex() + hex();
      const variant = '89ab'[word() & 3];
      return `${digits.slice(0, 8)}-${digits.slice(8, 12)}-4${digits.slice(13, 16)}-${variant}${digits.slice(17, 20)}-${digits.slice(20)}`;
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
