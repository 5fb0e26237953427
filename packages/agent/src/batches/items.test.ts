import { expect, test } from 'vitest';
import { formatOf, itemsOfRows, readRows } from './items.ts';
import { checkAnswer, checkSchema } from './result-schema.ts';

test('a table with quotes, a byte order mark and line breaks in cells', async () => {
  const rows = await readRows('\ufeffid, name\n1,"Oslo, ""north"""\n\n2,"two\nlines"\n', 'csv');
  expect(rows).toEqual([
    { id: '1', name: 'Oslo, "north"' },
    { id: '2', name: 'two\nlines' },
  ]);
  expect(await readRows('a\tb\n1\t2\n', 'tsv')).toEqual([{ a: '1', b: '2' }]);
  expect(await readRows('{"a":"x","b":{"c":1}}\n\n{"a":2}\n', 'jsonl')).toEqual([{ a: 'x', b: '{"c":1}' }, { a: '2' }]);
  expect(['x.CSV', 'x.tsv', 'x.jsonl', 'x'].map(formatOf)).toEqual(['csv', 'tsv', 'jsonl', 'jsonl']);
});

test('what is wrong with a table is said with its line', async () => {
  await expect(readRows('a,b\n1,2\n3\n', 'csv')).rejects.toThrow(/at line 3/);
  await expect(readRows('{"a":1}\nnope\n', 'jsonl')).rejects.toThrow(/^Line 2 is not JSON/);
  await expect(readRows('[1]\n', 'jsonl')).rejects.toThrow(/^Line 1 must be a JSON object/);
  await expect(readRows('a,b\n', 'csv')).rejects.toThrow(/no rows/);
});

test('a large table is read without holding up the loop for long', async () => {
  const text = `id,name\n${Array.from({ length: 20_000 }, (_, n) => `${n},"name ${n}"`).join('\n')}\n`;
  let turns = 0;
  const ticking = setInterval(() => {
    turns += 1;
  }, 1);
  const rows = await readRows(text, 'csv');
  clearInterval(ticking);
  expect(rows).toHaveLength(20_000);
  expect(rows.at(-1)).toEqual({ id: '19999', name: 'name 19999' });
  expect(turns).toBeGreaterThan(0);
});

test('items: the template filled in, keyed by a column or by the row', () => {
  const rows = [
    { id: 'x', name: 'A {{id}}' },
    { id: 'y', name: 'B' },
  ];
  expect(itemsOfRows(rows, { template: '{{ name }} is {{id}}' })).toEqual([
    // What stands in a cell is data, whatever it looks like.
    { key: 'x', prompt: 'A {{id}} is x' },
    { key: 'y', prompt: 'B is y' },
  ]);
  expect(itemsOfRows(rows, { template: '{{name}}', keyColumn: 'name' }).map(({ key }) => key)).toEqual([
    'A {{id}}',
    'B',
  ]);
  const twice = [
    { id: '1', n: 'a' },
    { id: '1', n: 'b' },
  ];
  expect(itemsOfRows(twice, { template: '{{n}}' }).map(({ key }) => key)).toEqual(['1', '2']);
  expect(() => itemsOfRows(rows, { template: '{{nmae}}' })).toThrow(/\{\{nmae\}\}, which is no column.*\{\{name\}\}/);
  expect(() => itemsOfRows(rows, { template: 'the same' })).toThrow(/names no column/);
  expect(() => itemsOfRows(rows, { template: '{{name}}', keyColumn: 'q' })).toThrow(/no column "q"/);
});

test('a schema for results: checked when it is given, and against each answer', () => {
  const schema = { type: 'object', required: ['n'], properties: { n: { type: 'integer' } } };
  expect(() => checkSchema(schema)).not.toThrow();
  expect(checkAnswer('```json\n{"n": 3}\n```', schema)).toEqual({ outcome: 'valid', json: '{"n":3}' });
  expect(checkAnswer('{"n": "x"}', schema)).toMatchObject({
    outcome: 'invalid',
    problem: expect.stringContaining('/n'),
  });
  expect(checkAnswer('Three.', schema)).toMatchObject({
    outcome: 'invalid',
    problem: expect.stringMatching(/not JSON/),
  });
  // A model decides neither how long an expression runs nor where a request goes.
  expect(() => checkSchema({ type: 'string', pattern: '(a+)+$' })).toThrow(/"pattern" cannot be used/);
  expect(() => checkSchema({ $ref: 'https://example.com/x' })).toThrow(/only references within/);
  expect(() => checkSchema([1])).toThrow(/must be a JSON Schema object/);
  let deep: object = {};
  for (let n = 0; n < 100; n += 1) deep = { not: deep };
  expect(() => checkSchema(deep)).toThrow(/levels/);
});
