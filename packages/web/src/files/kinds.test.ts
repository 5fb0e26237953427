import { expect, test } from 'vitest';
import { decodeText, fileKind, fileName, mediaType, threadFile } from './kinds.ts';

test.each([
  ['/mnt/user-data/outputs/report.md', 'markdown'],
  ['a.HTML', 'page'],
  ['a.svg', 'image'],
  ['x/Makefile', 'text'],
  ['a.py', 'text'],
  ['a.pdf', 'paper'],
  ['a.CSV', 'table'],
  ['a.skill', 'skill'],
  ['a.docx', 'none'],
  ['noending', 'none'],
  ['constructor', 'none'],
])('%s is shown as %s', (path, kind) => {
  expect(fileKind(path)).toBe(kind);
});

test('names and media types', () => {
  expect(fileName('/mnt/user-data/outputs/a b.png')).toBe('a b.png');
  expect(mediaType('a.png')).toBe('image/png');
  expect(mediaType('a.html')).toBe('application/octet-stream');
});

test('text is what decodes, also when its last character is cut', () => {
  const bytes = new TextEncoder().encode('驯鹿');
  expect(decodeText(bytes)).toBe('驯鹿');
  expect(decodeText(bytes.subarray(0, 5))).toBe('驯');
  expect(decodeText(new Uint8Array([0x61, 0]))).toBeNull();
  expect(decodeText(new Uint8Array([0xff, 0xfe, 0x61]))).toBeNull();
});

test.each([
  ['/mnt/user-data/outputs/a.md', '/mnt/user-data/outputs/a.md'],
  ['sandbox:/mnt/user-data/outputs/a%20b.md', '/mnt/user-data/outputs/a b.md'],
  ['/mnt/user-data/outputs/a.md#part', '/mnt/user-data/outputs/a.md'],
  ['/mnt/user-data/outputs/../../etc/passwd', null],
  ['/mnt/user-data/outputs/%2e%2e/x', null],
  ['/etc/passwd', null],
  ['https://example.org/mnt/user-data/outputs/a', null],
  ['%', null],
])('%s is the file %s', (address, path) => {
  expect(threadFile(address)).toBe(path);
});
