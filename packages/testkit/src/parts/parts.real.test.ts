import { access } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { postgresMissing, throwawayPostgres } from './postgres.ts';
import { redisMissing, throwawayRedis } from './redis.ts';

test('a throw-away Postgres starts, copies databases, survives a restart and a crash, and leaves nothing', async (ctx) => {
  const missing = await postgresMissing();
  if (missing !== null) ctx.skip(missing);
  const postgres = await throwawayPostgres();
  let data = '';
  try {
    const template = await postgres.createDatabase();
    await postgres.query(template, 'create table t (a text)');
    await postgres.query(template, "insert into t values ('B'), ('a')");
    const copy = await postgres.createDatabase(template);
    // An order of words, not of bytes.
    expect(await postgres.query(copy, 'select a from t order by a')).toEqual([{ a: 'a' }, { a: 'B' }]);
    await postgres.restart();
    await postgres.restart('crash');
    expect(await postgres.query(copy, 'select count(*)::int as n from t')).toEqual([{ n: 2 }]);
    await postgres.dropDatabase(copy);
    await expect(postgres.query(copy, 'select 1')).rejects.toMatchObject({ code: '3D000' });
    const [row] = await postgres.query<{ folder: string }>(
      postgres.url,
      "select current_setting('data_directory') as folder",
    );
    data = row?.folder ?? '';
  } finally {
    await postgres.stop();
    await postgres.stop();
  }
  await expect(postgres.query(postgres.url, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  expect(data).not.toBe('');
  await expect(access(data)).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a throw-away Redis starts, forgets in a restart, and ends', async (ctx) => {
  const missing = await redisMissing();
  if (missing !== null) ctx.skip(missing);
  const redis = await throwawayRedis();
  try {
    expect(redis.url).toBe(`redis://127.0.0.1:${redis.port}`);
    await redis.halt();
    await redis.restart();
  } finally {
    await redis.stop();
    await redis.stop();
  }
});
