import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { findMapping, type Mapping, parseVirtualPath, threadMappings } from './virtual-path.ts';

const mappings = threadMappings('/secret/home/users/u/threads/t/user-data', ['uploads']);

function codeOf(path: string): string {
  try {
    parseVirtualPath(path, mappings);
    return 'accepted';
  } catch (error) {
    if (!ReindeerError.is(error)) throw error;
    expect(error.message).not.toContain('/secret');
    return error.code;
  }
}

test('different spellings of a path become one', () => {
  for (const path of [
    'a/b.txt',
    './a//b.txt',
    'a\\b.txt',
    '/mnt/user-data/workspace/x/../a/b.txt',
    'x/../a/./b.txt/',
  ]) {
    expect(parseVirtualPath(path, mappings).path).toBe('/mnt/user-data/workspace/a/b.txt');
  }
});

test('a path that leaves the thread’s folders is refused', verifies('SL-01', 'SL-05'), () => {
  for (const path of [
    '../../etc/passwd',
    '/etc/passwd',
    '/mnt/user-data/../../etc',
    '/mnt',
    '/',
    '../../../../..',
    '/mnt/user-data/other/x',
    '',
    '/mnt/user-data/workspace/\0',
    'a\nb',
  ]) {
    expect(codeOf(path), path).toBe('path_refused');
  }
});

test('a prefix counts only at a segment boundary', verifies('SL-02'), () => {
  expect(codeOf('/mnt/user-data2/workspace/x')).toBe('path_refused');
  expect(codeOf('/mnt/user-data/workspace2/x')).toBe('path_refused');
  expect(codeOf('/mnt/user-data/workspace/x')).toBe('accepted');
});

test('the longest mapping wins, and a nested read-only one stays read-only', verifies('SL-03'), () => {
  const nested: Mapping[] = [
    { virtual: '/a', real: '/one', readOnly: false },
    { virtual: '/a/b', real: '/two', readOnly: true },
  ];
  for (const order of [nested, [...nested].reverse()]) {
    expect(findMapping('/a/b/c', order)).toMatchObject({ real: '/two', readOnly: true });
    expect(findMapping('/a/bc', order)).toMatchObject({ real: '/one', readOnly: false });
    expect(parseVirtualPath('/a/x/../b/c', order)).toMatchObject({ parts: ['c'], mapping: { readOnly: true } });
  }
});

test('whatever is accepted stays below its mapping', verifies('SL-01'), () => {
  const part = fc.oneof(fc.constantFrom('..', '.', '', 'mnt', 'user-data', 'workspace', 'a'), fc.string());
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), fc.boolean(), (parts, absolute) => {
      const path = `${absolute ? '/' : ''}${parts.join('/')}`;
      if (codeOf(path) !== 'accepted') return;
      const parsed = parseVirtualPath(path, mappings);
      expect(parsed.parts.every((name) => !['', '.', '..'].includes(name) && !name.includes('/'))).toBe(true);
      expect(parseVirtualPath(parsed.path, mappings)).toEqual(parsed);
    }),
  );
});
