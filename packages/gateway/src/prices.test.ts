import { makeRun, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { threadUsage } from './http/thread-reading.ts';
import { pricesOf } from './prices.ts';

test('a thread costs what its models do; what a cache gave has its own price', verifies('OBS-1'), () => {
  const prices = pricesOf({
    models: [
      {
        name: 'big',
        model: 'big-1',
        pricing: { currency: 'EUR', input_per_million: 10, output_per_million: 30, input_cache_hit_per_million: 1 },
      },
      { name: 'small', pricing: { input_per_million: 1, output_per_million: 2 } },
      { name: 'free', pricing: { input_per_million: 1 } },
    ] as never,
  });
  const share = { inputTokens: 1_000_000, outputTokens: 100_000, calls: 1 };
  const run = makeRun({
    usage: {
      inputTokens: 0,
      outputTokens: 0,
      totalTokens: 0,
      modelCalls: 3,
      by: {
        models: { 'big-1': { ...share, cacheReadTokens: 500_000, reasoningTokens: 7 }, small: share, free: share },
        callers: {},
      },
    },
  });
  expect(threadUsage('t', [run, run], prices).by_model).toEqual({
    'big-1': {
      tokens: 2_200_000,
      runs: 2,
      cache_read_tokens: 1_000_000,
      reasoning_tokens: 14,
      cost: { amount: 17, currency: 'EUR' },
    },
    small: { tokens: 2_200_000, runs: 2, cost: { amount: 2.4, currency: 'USD' } },
    free: { tokens: 2_200_000, runs: 2 },
  });
});
