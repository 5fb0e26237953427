import { describe, expect, test } from 'vitest';
import { didYouMean, nearest } from './nearest.ts';

describe('nearest', () => {
  test('finds a misspelt, transposed or differently written name', () => {
    const known = ['stream_mode', 'stream_subgraphs', 'metadata', 'on_disconnect'];
    expect(nearest('strem_mode', known)).toBe('stream_mode');
    expect(nearest('streamMode', known)).toBe('stream_mode');
    expect(nearest('metdaata', known)).toBe('metadata');
    expect(didYouMean('onDisconnect', known)).toBe(' Did you mean "on_disconnect"?');
  });

  test('says nothing when nothing is near', () => {
    expect(nearest('colour', ['stream_mode', 'metadata'])).toBeNull();
    expect(didYouMean('x', [])).toBe('');
  });
});
