import { access, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import { dockerMissing, throwawayDocker } from './docker/index.ts';
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

test('a throw-away container engine starts, forgets nothing in a restart, and leaves nothing', async (ctx) => {
  const missing = await dockerMissing();
  if (missing !== null) ctx.skip(missing);
  const folder = await mkdtemp(`${tmpdir()}/reindeer-parts-`);
  // Any program will do here.
  await writeFile(`${folder}/server.ts`, "process.stdout.write('started as ' + process.title.length);\n");
  await writeFile(`${folder}/start.sh`, 'exec node /opt/reindeer/server.mjs\n');
  const docker = await throwawayDocker({ server: `${folder}/server.ts`, launcher: `${folder}/start.sh` });
  try {
    const name = `${docker.prefix}-one`;
    const spec = { Image: docker.image, HostConfig: { NetworkMode: 'none' } };
    expect((await docker.ask('POST', `/containers/create?name=${name}`, spec)).status).toBe(201);
    expect((await docker.ask('POST', `/containers/${name}/start`)).status).toBe(204);
    expect((await docker.ask('POST', `/containers/${name}/wait`)).body).toMatchObject({ StatusCode: 0 });
    expect((await docker.ask('GET', `/containers/${name}/logs?stdout=true`)).text).toContain('started as');
    if (docker.own) await docker.restart();
    expect(await docker.containers()).toEqual([name]);
    expect((await docker.ask('GET', `/images/${docker.image}/json`)).status).toBe(200);
  } finally {
    await docker.stop();
    await docker.stop();
    await rm(folder, { recursive: true, force: true });
  }
  if (docker.own) await expect(access(docker.socket)).rejects.toMatchObject({ code: 'ENOENT' });
});
