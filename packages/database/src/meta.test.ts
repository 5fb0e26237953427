import { expect, test } from 'vitest';
import { decideEpoch } from './meta.ts';

const running = { epoch: 'old', boot: 'boot-1', open: true, restored: false };
const clean = { ...running, open: false };

test.each([
  ['a new database', { epoch: null, boot: null, open: false, restored: false }, 'boot-1', 'new'],
  ['a clean stop', clean, 'boot-1', 'old'],
  ['a clean stop and a new boot', clean, 'boot-2', 'old'],
  ['a killed process', running, 'boot-1', 'old'],
  ['a power cut', running, 'boot-2', 'new'],
  ['a stop that nobody can tell from a power cut', running, null, 'new'],
  ['the same, the other way round', { ...running, boot: null }, 'boot-1', 'new'],
  ['a restored backup', { ...clean, restored: true }, 'boot-1', 'new'],
  ['a corrected clock', { ...running, boot: 'time:1000' }, 'time:1090', 'old'],
  ['another boot by the clock', { ...running, boot: 'time:1000' }, 'time:1300', 'new'],
])('after %s', (_what, stored, boot, epoch) => {
  expect(decideEpoch(stored, { boot, freshEpoch: 'new' })).toBe(epoch);
});
