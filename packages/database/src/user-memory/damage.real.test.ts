import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { memoryChange, memoryFact, testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { DATABASE_FILE, openSqlite } from '../sqlite/open.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'reindeer-memory-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const own = { userId: 'user', agent: '_default' };

test(
  'a damaged memory is an error, never an empty one, and nothing is written on top of it',
  verifies('MEM-5'),
  async () => {
    const surroundings = testSurroundings();
    const first = await openSqlite({ folder, surroundings });
    const sections = { topOfMind: [{ text: 'Boats.', sources: ['one'] }] };
    await first.memory.change({ ...own, change: memoryChange({ put: [memoryFact('one')], sections }), now: 1 });
    await first.memory.change({ ...own, userId: 'other', change: memoryChange({ put: [memoryFact('two')] }), now: 1 });
    await first.close();

    for (const damage of [
      `update memory_facts set body = '{"content": "half' where user_id = 'user'`,
      `update memory_facts set body = '{}' where user_id = 'user'`,
      `update memory_sections set statements = '[{"text": 1}]' where user_id = 'user'`,
    ]) {
      const raw = new DatabaseSync(join(folder, DATABASE_FILE));
      const before = raw.prepare('select body from memory_facts').all();
      const whole = raw.prepare('select statements from memory_sections').get() as { statements: string };
      raw.exec(damage);
      raw.close();
      const stores = await openSqlite({ folder, surroundings });
      const damaged = { code: 'internal', message: expect.stringContaining('damaged') };
      await expect(stores.memory.read(own)).rejects.toMatchObject(damaged);
      const change = memoryChange({ put: [memoryFact('three')] });
      await expect(stores.memory.change({ ...own, change, now: 2 })).rejects.toMatchObject(damaged);
      // It is the user's own: others are not touched by it, and it can still be erased.
      expect((await stores.memory.read({ ...own, userId: 'other' })).facts).toHaveLength(1);
      await stores.close();
      const mended = new DatabaseSync(join(folder, DATABASE_FILE));
      expect(mended.prepare('select count(*) as count from memory_facts').get()).toEqual({ count: 2 });
      const [fact] = before as { body: string }[];
      mended.prepare("update memory_facts set body = ? where user_id = 'user'").run(fact?.body ?? '');
      mended.prepare('update memory_sections set statements = ?').run(whole.statements);
      mended.close();
    }
    const stores = await openSqlite({ folder, surroundings });
    expect((await stores.memory.read(own)).facts).toHaveLength(1);
    await stores.memory.clear({ userId: 'user', now: 3 });
    expect((await stores.memory.read(own)).facts).toEqual([]);
    await stores.close();
  },
);
