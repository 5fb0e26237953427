import type { Batch, BatchItem } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { csvCell, csvLines } from './report.ts';

test('no cell of a table is run by a spreadsheet, and numbers stay numbers', () => {
  const formulas = ['=1+1', '+1', '-cmd', '@x', '\t=1', '\r=1', '\n=1', '＝1', '＋1', '－1', '＠x'];
  for (const text of formulas) expect(csvCell(text).replace(/^"([\s\S]*)"$/, '$1')).toBe(`'${text}`);
  expect(['-1', '-1.5', 'a=b', ''].map(csvCell)).toEqual(['-1', '-1.5', 'a=b', '']);
  expect(csvCell('a "b", c')).toBe('"a ""b"", c"');
});

test('a column has what the result brings, also when it is called as something that every object has', async () => {
  const batch = { spec: { result_schema: JSON.parse('{"properties":{"__proto__":{},"n":{}}}') } } as unknown as Batch;
  async function* items() {
    for (const [key, result] of [
      ['a', '{"n":1}'],
      ['b', '{"__proto__":"c","n":null}'],
    ])
      yield { key, status: 'succeeded', result, verdict: null, error: null } as BatchItem;
  }
  const lines: string[] = [];
  for await (const line of csvLines(items(), batch)) lines.push(line);
  expect(lines).toEqual([
    'key,status,__proto__,n,result,error\r\n',
    'a,succeeded,,1,"{""n"":1}",\r\n',
    'b,succeeded,c,,"{""__proto__"":""c"",""n"":null}",\r\n',
  ]);
});
