import { expect, test } from 'vitest';
import { speak } from '../words/words.ts';
import { takeFiles } from './attachments.ts';

const file = (name: string, size: number) => new File(['x'.repeat(size)], name);
const limits = { maxFiles: 3, maxFileSize: 10, maxTotalSize: 15 };

test('takes what fits, in order, and says why the rest does not', () => {
  const { taken, refused } = takeFiles(
    [file('old.txt', 4)],
    [file('big.txt', 11), file('a.txt', 6), file('b.txt', 6), file('c.txt', 5), file('d.txt', 0)],
    limits,
    speak('en'),
  );
  expect(taken.map((entry) => entry.name)).toEqual(['a.txt', 'c.txt']);
  expect(refused).toEqual([
    'big.txt is larger than 10 B and was left out.',
    'All files together may have 15 B; b.txt was left out.',
    'At most 3 files go with one message; d.txt was left out.',
  ]);
});

test('a folder is refused', () => {
  expect(takeFiles([], [file('folder', 0)], limits, speak('en')).refused).toHaveLength(1);
});
