import { webcrypto } from 'node:crypto';
import { expect, test } from 'vitest';
import { newUuid, threadInPath } from './route.ts';

test('the address names a chat or a new one', () => {
  expect(threadInPath('/chats/abc-1_2')).toBe('abc-1_2');
  expect(threadInPath('/chats/abc/')).toBe('abc');
  for (const path of ['/', '/chats', '/chats/', '/chats/a/b', '/chats/a%2fb', `/chats/${'a'.repeat(65)}`])
    expect(threadInPath(path)).toBeNull();
});

test('ids are UUIDs with and without the newer function', () => {
  const old = {
    getRandomValues: (bytes: Uint8Array<ArrayBuffer>) => webcrypto.getRandomValues(bytes),
  } as unknown as Crypto;
  const pattern = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
  expect(newUuid(old)).toMatch(pattern);
  expect(newUuid(webcrypto as unknown as Crypto)).toMatch(pattern);
  expect(newUuid(old)).not.toBe(newUuid(old));
});
