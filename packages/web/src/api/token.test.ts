import { expect, test } from 'vitest';
import { keepToken, type Storage, takeToken, tolerant } from './token.ts';

function memory(): Storage {
  const kept = new Map<string, string>();
  return {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, value),
    removeItem: (key) => kept.delete(key),
  };
}

test('the token leaves the address and stays for the tab', () => {
  const storage = memory();
  let cleared = 0;
  const address = { hash: '#token=a%2Bb', clear: () => (cleared += 1) };
  expect(takeToken(address, storage)).toBe('a+b');
  expect(cleared).toBe(1);
  expect(takeToken({ hash: '', clear: () => (cleared += 1) }, storage)).toBe('a+b');
  expect(cleared).toBe(1);
  keepToken('new', storage);
  expect(takeToken({ hash: '#other=1', clear: () => {} }, storage)).toBe('new');
});

test('a storage that is switched off is no reason to fail', () => {
  const storage = tolerant(() => {
    throw new Error('denied');
  });
  storage.setItem('a', 'b');
  storage.removeItem('a');
  expect(storage.getItem('a')).toBeNull();
  expect(takeToken({ hash: '#token=x', clear: () => {} }, storage)).toBe('x');
});
