import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { sql } from 'kysely';
import { afterEach, expect, test } from 'vitest';
import { defineScript, defineStatement } from '../executor.ts';
import { META, readMeta, writeMeta } from '../meta.ts';
import { SqliteConnection } from './connection.ts';
import { isUniqueViolation } from './errors.ts';

const put = defineScript('put', 'write', (tx, input: { name: string; value: string }) =>
  writeMeta(tx, input.name, input.value),
);
const get = defineScript('get', 'read', (tx, input: { name: string }) => readMeta(tx, input.name));
const fail = defineScript('fail', 'write', async (tx, input: { name: string; error: 'ours' | 'bug' | 'unique' }) => {
  await writeMeta(tx, input.name, 'half');
  tx.appended('thread-of-a-failure', 1);
  if (input.error === 'ours') throw new ReindeerError('too_large', 'Too large.', { detail: { limit: 1 } });
  if (input.error === 'unique') await tx.run(insertMeta, { name: input.name });
  throw new Error('a bug');
});
const insertMeta = defineStatement((db, p: { name: string }) =>
  db.insertInto('meta').values({ name: p.name, value: '' }),
);
const insertOrRollback = defineStatement((db, p: { name: string }) =>
  db.insertInto('meta').orRollback().values({ name: p.name, value: '' }),
);
const failAll = defineScript('fail.all', 'write', (tx, input: { name: string }) => tx.run(insertOrRollback, input));
const tell = defineScript('tell', 'write', async (tx, input: { threadId: string; head: number }) => {
  tx.appended(input.threadId, input.head);
});
const level = defineStatement((db, _p: object) =>
  db.selectFrom(sql<{ synchronous: number }>`pragma_synchronous`.as('p')).select('synchronous'),
);
const readLevel = async (tx: Parameters<typeof get.run>[0]) => (await tx.first(level, {}))?.synchronous;
const levelWrite = defineScript('level.write', 'write', (tx, _input: object) => readLevel(tx));
const levelDurable = defineScript('level.durable', 'durable', (tx, _input: object) => readLevel(tx));

const open: SqliteConnection[] = [];
const connect = () => {
  const connection = new SqliteConnection(':memory:', {
    put,
    get,
    fail,
    tell,
    'fail.all': failAll,
    'level.write': levelWrite,
    'level.durable': levelDurable,
  });
  open.push(connection);
  return connection;
};
afterEach(() => {
  for (const connection of open.splice(0)) connection.close();
});

test('a failing operation undoes its own writes and none of its neighbours’', async () => {
  const connection = connect();
  const { results, appended } = await connection.runBatch([
    { name: 'put', input: { name: 'a', value: '1' } },
    { name: 'tell', input: { threadId: 't', head: 1 } },
    { name: 'fail', input: { name: 'b', error: 'bug' } },
    { name: 'fail', input: { name: 'a', error: 'ours' } },
    { name: 'fail', input: { name: 'c', error: 'unique' } },
    { name: 'put', input: { name: 'd', value: new Date() } },
    { name: 'unknown', input: {} },
    { name: 'put', input: { name: 'e', value: '2' } },
    { name: 'tell', input: { threadId: 't', head: 3 } },
    { name: 'get', input: { name: 'a' } },
  ]);
  expect(results.map((result) => (result.ok ? 'ok' : result.error.code))).toEqual([
    'ok',
    'ok',
    'internal',
    'too_large',
    'conflict',
    'internal',
    'internal',
    'ok',
    'ok',
    'ok',
  ]);
  expect(results[3]).toEqual({
    ok: false,
    error: { code: 'too_large', message: 'Too large.', retryable: false, detail: { limit: 1 } },
  });
  // Reads see what was written before them in the same batch.
  expect(results[9]).toEqual({ ok: true, value: '1' });
  // One hint per thread and flush, with the newest number; none of an operation that was undone.
  expect(appended).toEqual([['t', 3]]);
  const after = await connection.runBatch(['a', 'b', 'c', 'd', 'e'].map((name) => ({ name: 'get', input: { name } })));
  expect(after.results.map((result) => (result.ok ? result.value : result.error))).toEqual([
    '1',
    null,
    null,
    null,
    '2',
  ]);
});

test('an operation alone that fails undoes its own writes, and leaves nothing open', async () => {
  const connection = connect();
  const { results, appended } = await connection.runBatch([{ name: 'fail', input: { name: 'a', error: 'ours' } }]);
  expect(results).toMatchObject([{ ok: false, error: { code: 'too_large' } }]);
  expect(appended).toEqual([]);
  const [put, ...after] = [
    ...(await connection.runBatch([{ name: 'put', input: { name: 'b', value: '1' } }])).results,
    ...(await connection.runBatch(['a', 'b'].map((name) => ({ name: 'get', input: { name } })))).results,
  ];
  expect(put).toMatchObject({ ok: true });
  expect(after).toEqual([null, '1'].map((value) => ({ ok: true, value })));
});

test('a fault that undoes the whole transaction is told to every caller of the batch', async () => {
  const connection = connect();
  await connection.runBatch([{ name: 'put', input: { name: 'x', value: 'before' } }]);
  const { results, appended } = await connection.runBatch([
    { name: 'put', input: { name: 'a', value: '1' } },
    { name: 'tell', input: { threadId: 't', head: 1 } },
    { name: 'fail.all', input: { name: 'x' } },
    { name: 'put', input: { name: 'b', value: '1' } },
  ]);
  expect(results.map((result) => (result.ok ? 'ok' : result.error.code))).toEqual([
    'store_unavailable',
    'store_unavailable',
    'conflict',
    'store_unavailable',
  ]);
  expect(appended).toEqual([]);
  const after = await connection.runBatch(['a', 'b', 'x'].map((name) => ({ name: 'get', input: { name } })));
  expect(after.results).toEqual([null, null, 'before'].map((value) => ({ ok: true, value })));
});

test('every commit is flushed to the disk when one operation of the batch acknowledges something', async () => {
  const connection = connect();
  const levels = async (...names: string[]) =>
    (await connection.runBatch(names.map((name) => ({ name, input: {} })))).results.map(
      (result) => result.ok && result.value,
    );
  const NORMAL = 1;
  const FULL = 2;
  expect(await levels('level.write', 'level.write')).toEqual([NORMAL, NORMAL]);
  expect(await levels('level.write', 'level.durable')).toEqual([FULL, FULL]);
  expect(await levels('level.write')).toEqual([NORMAL]);
});

test('a broken uniqueness is known by the engine’s code, not by a text', verifies('RA-13'), async () => {
  const unique = Object.assign(new Error('whatever it says'), { errcode: 2067 });
  const primary = Object.assign(new Error('whatever it says'), { errcode: 1555 });
  expect([unique, primary].map(isUniqueViolation)).toEqual([true, true]);
  const others = [
    new Error('UNIQUE constraint failed: runs.run_id'),
    new ReindeerError('internal', 'UNIQUE constraint failed'),
    Object.assign(new Error('UNIQUE constraint failed'), { errcode: 19 }),
    Object.assign(new Error('UNIQUE constraint failed'), { errcode: 5 }),
    null,
  ];
  expect(others.map(isUniqueViolation)).toEqual([false, false, false, false, false]);
  // The codes are what this engine really gives.
  const { results } = await connect().runBatch([{ name: 'fail', input: { name: META.epoch, error: 'unique' } }]);
  expect(results[0]).toMatchObject({ ok: false, error: { code: 'conflict', detail: { sqlite: 1555 } } });
});

test('an empty batch is answered', async () => {
  expect(await connect().runBatch([])).toEqual({ results: [], appended: [] });
});
