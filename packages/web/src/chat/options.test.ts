import { expect, test } from 'vitest';
import type { ModelEntry } from '../api/api.ts';
import { effortOf, runOptions, takesEffort } from './options.ts';

const model = (abilities: Partial<ModelEntry>) => ({ thinks: false, effort: false, ...abilities }) as ModelEntry;
const toggles = { plan: false, helpers: false, thinking: true };

test('a model is told how hard to think only where it can be told, and while it thinks', () => {
  const able = model({ thinks: true, effort: true });
  expect(runOptions({ model: able, toggles, effort: 'high' })).toEqual({ thinking: true, effort: 'high' });
  expect(runOptions({ model: able, toggles: { ...toggles, thinking: false }, effort: 'high' })).toEqual({
    thinking: false,
  });
  expect(runOptions({ model: model({}), toggles, effort: 'high' })).toEqual({});
  expect(runOptions({ model: model({ effort: true }), toggles, effort: 'low' })).toEqual({ effort: 'low' });
  expect(takesEffort({ model: null, toggles })).toBe(false);
  expect([effortOf('medium'), effortOf('huge'), effortOf(null)]).toEqual(['medium', null, null]);
});
