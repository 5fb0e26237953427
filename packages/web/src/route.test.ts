import { webcrypto } from 'node:crypto';
import { expect, test } from 'vitest';
import { newUuid, pathOf, placeOf } from './route.ts';

test('an address names a place, and every place has its address', () => {
  const NEW = { at: 'new', agent: null, bootstrap: false };
  expect(placeOf('/chats/abc-1_2')).toEqual({ at: 'chat', threadId: 'abc-1_2' });
  expect(placeOf('/chats/abc/')).toEqual({ at: 'chat', threadId: 'abc' });
  expect(placeOf('/memory')).toEqual({ at: 'memory' });
  expect(placeOf('/agents/Writer-2/new')).toEqual({ at: 'new', agent: 'writer-2', bootstrap: false });
  for (const path of [
    '/',
    '/chats',
    '/chats/',
    '/chats/a/b',
    '/chats/a%2fb',
    `/chats/${'a'.repeat(65)}`,
    '/memory/x',
    '/agents/a_b/new',
  ])
    expect(placeOf(path)).toEqual(NEW);
  for (const place of [placeOf('/'), placeOf('/chats/x'), placeOf('/skills'), placeOf('/agents/a/make')])
    expect(placeOf(pathOf(place))).toEqual(place);
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
