import { expect, test } from 'vitest';
import {
  bindParameters,
  changes,
  compileStatement,
  createDialect,
  defineStatement,
  lasting,
  sendAll,
  type Tx,
  transactionOver,
} from './executor.ts';
import { texts } from './sql.ts';

const find = defineStatement((db, p: { threadId: string; at: number }, dialect) =>
  db
    .selectFrom('runs')
    .select('run_id')
    .where('thread_id', '=', p.threadId)
    .where('kind', '=', 'run')
    .where('updated_at', '>', p.at)
    .where('owner', 'in', texts(dialect, '["a"]'))
    .limit(3),
);

test('a statement is compiled per dialect, with parameters and its own constants in the order of the text', () => {
  const sqlite = compileStatement(find, createDialect('sqlite'));
  expect(sqlite.sql).toContain('"thread_id" = ?');
  expect(sqlite.sql).toContain('json_each(?)');
  expect(bindParameters(sqlite, { at: 7, threadId: 't' })).toEqual(['t', 'run', 7, '["a"]', 3]);
  const postgres = compileStatement(find, createDialect('postgres'));
  expect(postgres.sql).toContain('"thread_id" = $1');
  // Its constants stand in the text, so that the planner knows them.
  expect(postgres.sql).toContain(`"kind" = 'run' and "updated_at" > $2`);
  expect(postgres.sql).toContain(`jsonb_array_elements_text('["a"]'::jsonb)`);
  expect(bindParameters(postgres, { at: 7, threadId: 't' })).toEqual(['t', 7]);
});

test('what a driver would store wrongly or as nothing is refused by name', () => {
  const compiled = compileStatement(find, createDialect('sqlite'));
  for (const [value, what] of [
    [new Date(), 'a Date'],
    [undefined, 'undefined'],
    [['x'], 'an array'],
    [Number.NaN, 'NaN'],
    [Number.POSITIVE_INFINITY, 'Infinity'],
    [{ a: 1 }, 'object'],
    [() => 1, '=>'],
  ] as const)
    expect(() => bindParameters(compiled, { threadId: 't', at: value })).toThrow(
      new RegExp(`Parameter "at" cannot be stored: .*${what}`),
    );
  expect(() => bindParameters(compiled, { threadId: 't' })).toThrow('Parameter "at"');
  for (const value of [null, 0, 1.5, 10n, new Uint8Array([1])])
    expect(bindParameters(compiled, { threadId: 't', at: value })[2]).toEqual(value);
  expect(bindParameters(compiled, { threadId: 't', at: true })[2]).toBe(1);
});

test('changes are one statement where each is a way over a network, and one each elsewhere', () => {
  const both = changes(
    defineStatement((db, p: { runId: string }) => db.deleteFrom('run_leases').where('run_id', '=', p.runId)),
    defineStatement((db, p: { runId: string }) => db.deleteFrom('runs').where('run_id', '=', p.runId)),
  );
  const sent: unknown[] = [];
  const tx = (serial: boolean) => ({ serial, send: (...one: unknown[]) => void sent.push(one) }) as unknown as Tx;
  sendAll(tx(true), both, { runId: 'r' });
  sendAll(tx(false), both, { runId: 'r' });
  expect(sent).toEqual([...both.each, both.together].map((statement) => [statement, { runId: 'r' }]));
  const { sql, slots } = compileStatement(both.together, createDialect('postgres'));
  expect(sql).toMatch(
    /^with "change_0" as \(delete from "run_leases" .*\), "change_1" as \(delete from "runs" .*\) select 1/,
  );
  expect(slots).toEqual([{ name: 'runId' }, { name: 'runId' }]);
});

test('what lasts is asked once in a transaction; what is not there yet is asked again', async () => {
  const steady = lasting(
    defineStatement((db, p: { runId: string }) => db.selectFrom('runs').select('status').where('run_id', '=', p.runId)),
  );
  const changing = defineStatement((db, p: { runId: string }) =>
    db.selectFrom('runs').select('status').where('run_id', '=', p.runId),
  );
  let asked = 0;
  const rows = new Map<string, object>([['there', { status: 'running' }]]);
  const tx = {
    first: async (_statement: unknown, { runId }: { runId: string }) => {
      asked += 1;
      return rows.get(runId);
    },
  } as unknown as Tx;
  const one = transactionOver(tx);
  expect(await one.first(steady, { runId: 'there' })).toEqual({ status: 'running' });
  expect(await one.first(steady, { runId: 'there' })).toEqual({ status: 'running' });
  expect(asked).toBe(1);
  expect(await one.first(steady, { runId: 'new' })).toBeUndefined();
  rows.set('new', { status: 'pending' });
  expect(await one.first(steady, { runId: 'new' })).toEqual({ status: 'pending' });
  expect(asked).toBe(3);
  await one.first(changing, { runId: 'there' });
  await one.first(changing, { runId: 'there' });
  expect(asked).toBe(5);
});
