import type { Settings } from './config/settings.ts';

/** Of one model, per million tokens. */
export interface Price {
  readonly currency: string;
  readonly input: number;
  /** Of what the provider reads from its cache. */
  readonly cached: number;
  readonly output: number;
}

/** By the provider's name of the model. */
export type Prices = ReadonlyMap<string, Price>;

const isPrice = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value) && value >= 0;

/** The prices that entries of `models` name in `pricing`; one without an input or output price has none. */
export function pricesOf({ models }: Pick<Settings, 'models'>): Prices {
  const prices = new Map<string, Price>();
  for (const { name, model = name, pricing } of models) {
    if (typeof pricing !== 'object' || pricing === null) continue;
    const given = pricing as Readonly<Record<string, unknown>>;
    const { input_per_million: input, output_per_million: output, input_cache_hit_per_million: hit } = given;
    if (!isPrice(input) || !isPrice(output) || prices.has(model)) continue;
    const currency = typeof given.currency === 'string' ? given.currency.slice(0, 10) : 'USD';
    prices.set(model, { currency, input, output, cached: isPrice(hit) ? hit : input });
  }
  return prices;
}
