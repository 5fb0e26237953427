import { expect, test } from 'vitest';
import { readTable } from './table.tsx';

test('quotes, line ends within cells, and a mark at the beginning', () => {
  expect(readTable('\ufeffname,height\r\n"Rudolf, the ""red""","1\n2"\nDasher\n', false)).toEqual({
    head: ['name', 'height'],
    rows: [['Rudolf, the "red"', '1\n2'], ['Dasher']],
    more: false,
  });
  expect(readTable('a\tb\n1\t2', true).rows).toEqual([['1', '2']]);
});

test('long tables are cut and say so', () => {
  const table = readTable(`n\n${Array.from({ length: 600 }, (_none, index) => index).join('\n')}`, false);
  expect(table.rows).toHaveLength(500);
  expect(table.more).toBe(true);
});
