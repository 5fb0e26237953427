import { ReindeerError } from '@reindeer/protocol';
import type { ClientBase } from 'pg';
import { expect, test } from 'vitest';
import { defineScript, defineStatement, type Tx } from '../executor.ts';
import { runScript, Statements, Undone } from './session.ts';

const find = defineStatement((db, p: { name: string }) =>
  db.selectFrom('meta').select('value').where('name', '=', p.name),
);
const put = defineStatement((db, p: { name: string; value: string }) =>
  db.insertInto('meta').values({ name: p.name, value: p.value }),
);

const refused = Object.assign(new Error('duplicate key'), { code: '23505' });
const aborted = Object.assign(new Error('current transaction is aborted'), { code: '25P02' });

/** A server that answers in the order of what it is sent. `fails`: the text of the statement that it refuses. */
function server(fails: RegExp | null = null) {
  const sent: string[] = [];
  const held: (() => void)[] = [];
  let broken = false;
  const query = (asked: string | { readonly text: string }): Promise<object> => {
    const text = typeof asked === 'string' ? asked : asked.text;
    sent.push(text.split(' ')[0] ?? '');
    return new Promise((resolve, reject) => {
      held.push(() => {
        if (text === 'commit') resolve({ command: broken ? 'ROLLBACK' : 'COMMIT', rows: [], rowCount: null });
        else if (text === 'rollback') resolve({ command: 'ROLLBACK', rows: [], rowCount: null });
        else if (broken) reject(aborted);
        else if (fails?.test(text) === true) {
          broken = true;
          reject(refused);
        } else resolve({ command: '', rows: [{ value: 'x' }], rowCount: 1 });
      });
    });
  };
  const answerAll = () => {
    for (const answer of held.splice(0)) answer();
  };
  const run = <O>(script: (tx: Tx) => Promise<O>, trip?: 'alone') =>
    runScript({ query } as unknown as ClientBase, new Statements(), defineScript('x', 'write', script, trip), {});
  /** Answers whatever comes until the call has ended. */
  const ended = async <T>(call: Promise<T>): Promise<T> => {
    let over = false;
    const done = () => {
      over = true;
    };
    call.then(done, done);
    for (let turn = 0; turn < 100 && !over; turn += 1) {
      answerAll();
      await new Promise((resolve) => setImmediate(resolve));
    }
    return call;
  };
  return { sent, run, ended, answerAll };
}
const turn = () => new Promise((resolve) => setImmediate(resolve));
const failureOf = (call: Promise<unknown>) => call.then(() => null).catch((error: unknown) => error as Undone);

test('what a script only sends is on its way together with the commit, and its row is told before the end', async () => {
  const s = server();
  const call = s.run(async (tx) => {
    await tx.first(find, { name: 'a' });
    tx.send(put, { name: 'a', value: '1' });
    tx.send(find, { name: 'a' }, (row) => tx.appended('thread', row?.value === 'x' ? 7 : 0));
    return 'done';
  });
  await turn();
  expect(s.sent).toEqual(['begin', 'select']);
  s.answerAll();
  await turn();
  expect(s.sent).toEqual(['begin', 'select', 'insert', 'select', 'commit']);
  const { value, appended } = await s.ended(call);
  expect([value, [...appended]]).toEqual(['done', [['thread', 7]]]);
});

test('a sent statement that is refused undoes all of it, for its own reason', async () => {
  const only = server(/insert/);
  const undone = await failureOf(
    only.ended(
      only.run(async (tx) => {
        tx.send(put, { name: 'a', value: '1' });
        return 'done';
      }),
    ),
  );
  expect(undone).toBeInstanceOf(Undone);
  expect(undone).toMatchObject({ reason: refused, connectionLost: false });

  // Also where the script hears of it by the next answer, which says only that something failed.
  const followed = server(/insert/);
  const next = await failureOf(
    followed.ended(
      followed.run(async (tx) => {
        tx.send(put, { name: 'a', value: '1' });
        await tx.first(find, { name: 'a' });
      }),
    ),
  );
  expect(next).toMatchObject({ reason: refused, connectionLost: false });
  expect(followed.sent.at(-1)).toBe('rollback');
});

test('what a script decides by itself stands before what the server refused', async () => {
  const s = server(/insert/);
  const decided = new ReindeerError('conflict', 'Decided.');
  const undone = await failureOf(
    s.ended(
      s.run(async (tx) => {
        tx.send(put, { name: 'a', value: '1' });
        await tx.first(find, { name: 'a' }).catch(() => undefined);
        throw decided;
      }),
    ),
  );
  expect(undone).toMatchObject({ reason: decided });
});

test('a statement that cannot be sent fails the script: nothing is committed without it', async () => {
  const s = server();
  const undone = await failureOf(
    s.ended(
      s.run(async (tx) => {
        tx.send(put, { name: 'a', value: new Date() as never });
      }),
    ),
  );
  expect(undone?.reason).toBeInstanceOf(TypeError);
  expect(s.sent).toEqual(['begin', 'rollback']);
});

test('a script that is said to be one statement has no transaction around it, and no second statement', async () => {
  const s = server();
  await s.ended(s.run((tx) => tx.first(find, { name: 'a' }), 'alone'));
  expect(s.sent).toEqual(['select']);
  const twice = s.run(async (tx) => {
    await tx.first(find, { name: 'a' });
    await tx.first(find, { name: 'b' });
  }, 'alone');
  expect(await failureOf(s.ended(twice))).toMatchObject({ reason: { code: 'internal' } });
  expect(s.sent).toEqual(['select', 'select']);
});
