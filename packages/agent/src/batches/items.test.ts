import { expect, test } from 'vitest';
import { decodeTable, formatOf, itemsOfRows, type Row, readRows } from './items.ts';
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

test('columns that a spreadsheet parts by another sign are told from the header', async () => {
  const rows = [{ id: '1', 'a,b': 'x;y' }];
  expect(await readRows('\ufeffid;"a,b"\r\n1;"x;y"\r\n', 'csv')).toEqual(rows);
  expect(await readRows('sep=;\r\nid;"a,b"\r\n1;"x;y"\r\n', 'csv')).toEqual(rows);
  expect(await readRows('id\tname\n1\ta,b\n', 'csv')).toEqual([{ id: '1', name: 'a,b' }]);
  // A comma in the header wins, and one column needs no sign.
  expect(await readRows('id,a;b\n1,2;3\n', 'csv')).toEqual([{ id: '1', 'a;b': '2;3' }]);
  expect(await readRows('name\na;b\n', 'csv')).toEqual([{ name: 'a;b' }]);
  await expect(readRows('sep=;\na;b\n1\n', 'csv')).rejects.toThrow(/at line 3/);
});

test('a column that only late rows have is one', async () => {
  const lines = Array.from({ length: 150 }, (_, n) => JSON.stringify(n < 149 ? { id: n } : { id: n, note: 'late' }));
  const items = await itemsOfRows(await readRows(lines.join('\n'), 'jsonl'), { template: '{{id}} {{note}}' });
  expect(items.at(-1)?.prompt).toBe('149 late');
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

test('items: the template filled in, keyed by a column or by the row', async () => {
  const rows = [
    { id: 'x', name: 'A {{id}}' },
    { id: 'y', name: 'B' },
  ];
  expect(await itemsOfRows(rows, { template: '{{ name }} is {{id}}' })).toEqual([
    // What stands in a cell is data, whatever it looks like.
    { key: 'x', prompt: 'A {{id}} is x' },
    { key: 'y', prompt: 'B is y' },
  ]);
  const keys = async (of: readonly Row[], template: string, keyColumn?: string) =>
    (await itemsOfRows(of, { template, keyColumn })).map(({ key }) => key);
  expect(await keys(rows, '{{name}}', 'name')).toEqual(['A {{id}}', 'B']);
  const twice = [
    { id: '1', n: 'a' },
    { id: '1', n: 'b' },
  ];
  expect(await keys(twice, '{{n}}')).toEqual(['1', '2']);
  await expect(keys(rows, '{{nmae}}')).rejects.toThrow(/\{\{nmae\}\}, which is no column.*\{\{name\}\}/);
  await expect(keys(rows, 'the same')).rejects.toThrow(/names no column/);
  await expect(keys(rows, '{{name}}', 'q')).rejects.toThrow(/no column "q"/);
});

test('a table that means harm, or was made by accident, is read as it is or refused with the reason', async () => {
  const prompts = async (text: string, format: 'csv' | 'jsonl', template = 'Do {{name}}') =>
    (await itemsOfRows(await readRows(text, format), { template })).map(({ prompt }) => prompt);
  // Spreadsheets put a mark in front of any kind of text.
  expect(await prompts('\ufeff{"name":"a"}\r\n', 'jsonl')).toEqual(['Do a']);
  // A cell that a row lacks is empty, also when it is called as something that every object has.
  const lacks = '{"name":"a","constructor":"c"}\n{"name":"b"}\n';
  expect(await prompts(lacks, 'jsonl', '{{constructor}} {{name}}')).toEqual(['c a', ' b']);
  expect(await prompts('__proto__,name\nx,a\n', 'csv', '{{__proto__}} {{name}}')).toEqual(['x a']);
  await expect(prompts('name,b,name\n1,2,3\n', 'csv')).rejects.toThrow(/Two columns are called "name"/);
  const deep = `{"name":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
  await expect(prompts(`{"name":"a"}\n${deep}\n`, 'jsonl')).rejects.toThrow(/^Line 2 is nested too deeply/);
  // A template that repeats a long cell is stopped before it fills the memory.
  const long = 'x'.repeat(100_000);
  await expect(prompts(`name\n${long}\n`, 'csv', '{{name}}'.repeat(1_000))).rejects.toThrow(/more than 67108864/);
  await expect(readRows(`name\n${'r\n'.repeat(100_001)}`, 'csv')).rejects.toThrow(/more than 100000 rows/);
  expect(() => decodeTable(Buffer.from('name\nZürich\n', 'latin1'))).toThrow(/not UTF-8/);
  expect(decodeTable(Buffer.from('name\nZürich\n'))).toContain('Zürich');
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
  // A model decides neither how long an expression runs nor where a request goes; its words may be the names of properties.
  expect(() => checkSchema({ type: 'string', pattern: '(a+)+$' })).toThrow(/"pattern" cannot be used/);
  expect(() => checkSchema({ properties: { pattern: { type: 'string' } } })).not.toThrow();
  expect(() => checkSchema({ $ref: 'https://example.com/x' })).toThrow(/only references within/);
  expect(() => checkSchema([1])).toThrow(/must be a JSON Schema object/);
  let deep: object = {};
  for (let n = 0; n < 100; n += 1) deep = { not: deep };
  expect(() => checkSchema(deep)).toThrow(/levels/);
});

test.each([
  [{ hello: 'world' }, /no keyword of JSON Schema, only hello/],
  [{ type: 'nothing' }, /#\/type: must be one of null/],
  [{ properties: { a: null } }, /#\/properties\/a: must be a schema/],
  [{ properties: { a: { required: 'b' } } }, /#\/properties\/a\/required: must be a list of names/],
  [{ properties: { a: { allOf: 7 } } }, /allOf: must be a list of schemas/],
  [{ properties: { a: { enum: 7 } } }, /enum: must be a list/],
  [{ minLength: 'x' }, /minLength: must be a whole number/],
  [{ properties: { a: { $ref: '#/nowhere' } } }, /nothing of this schema is at "#\/nowhere"/],
  [{ required: ['x'], properties: { a: { $ref: '#/required' } } }, /nothing of this schema is at/],
  [{ properties: { a: { $ref: '#/properties/a' } } }, /leads back to itself/],
  [{ $defs: { a: { anyOf: [{ $ref: '#/$defs/b' }] }, b: { not: { $ref: '#/$defs/a' } } } }, /leads back to itself/],
])('what is no schema is refused before anybody works for it: %j', (schema, why) => {
  expect(() => checkSchema(schema)).toThrow(why);
});

test('an answer that cannot be checked does not fit, however long that would take', () => {
  // A tree of itself is a good schema.
  const tree = { type: 'object', properties: { a: { $ref: '#' } }, additionalProperties: false };
  expect(() => checkSchema(tree)).not.toThrow();
  const nested = (depth: number) => `${'{"a":'.repeat(depth)}{}${'}'.repeat(depth)}`;
  expect(checkAnswer(nested(20), tree)).toMatchObject({ outcome: 'valid' });
  expect(checkAnswer(nested(20_000), tree)).toMatchObject({
    outcome: 'invalid',
    problem: expect.stringMatching(/cannot be checked/),
  });
  // Each level asks twice for what is below.
  const twice = {
    anyOf: [{ properties: { a: { $ref: '#' } }, required: ['b'] }, { properties: { a: { $ref: '#' } } }],
  };
  expect(() => checkSchema(twice)).not.toThrow();
  expect(checkAnswer(nested(60), twice)).toMatchObject({
    outcome: 'invalid',
    problem: expect.stringMatching(/cannot be checked/),
  });
});
