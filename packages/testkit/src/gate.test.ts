import childProcess, { execFileSync } from 'node:child_process';
import crypto, { scryptSync } from 'node:crypto';
import fs, { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, opendir, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import zlib from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { allowBlocking, BlockingCallError, eventLoopGateInstalled, verifies, withEventLoopGate } from './index.ts';

const require = createRequire(import.meta.url);
const here = new URL(import.meta.url).pathname;

describe('the event-loop gate', () => {
  const calls: Record<string, () => unknown> = {
    'fs.readFileSync': () => readFileSync(here),
    'fs.existsSync': () => existsSync(here),
    'fs.statSync': () => fs.statSync(here),
    'fs.realpathSync': () => fs.realpathSync(here),
    'fs.openSync': () => (require('node:fs') as typeof fs).openSync(here, 'r'),
    'child_process.execFileSync': () => execFileSync('true'),
    'child_process.spawnSync': () => childProcess.spawnSync('true'),
    'zlib.gzipSync': () => zlib.gzipSync('x'),
    'crypto.scryptSync': () => scryptSync('x', 'y', 16),
    'crypto.pbkdf2Sync': () => crypto.pbkdf2Sync('x', 'y', 1, 16, 'sha256'),
    'Atomics.wait': () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1),
  };
  for (const [name, call] of Object.entries(calls))
    test(`has teeth for ${name}`, verifies('BL-02'), async () => {
      const guarded = withEventLoopGate(async () => {
        await readFile(here);
        call();
      });
      await expect(guarded).rejects.toThrow(BlockingCallError);
      await expect(guarded).rejects.toMatchObject({ call: name, message: expect.stringContaining(name) });
      // The stack leads to the caller.
      await expect(guarded).rejects.toMatchObject({ stack: expect.stringContaining('gate.test.ts') });
      expect(eventLoopGateInstalled()).toBe(false);
    });

  test('catches statements on a database that was opened before', verifies('BL-02'), async () => {
    const database = new DatabaseSync(':memory:');
    const statement = database.prepare('select 1 as one');
    for (const [name, call] of [
      ['sqlite.DatabaseSync.exec', () => database.exec('select 1')],
      ['sqlite.DatabaseSync.prepare', () => database.prepare('select 1')],
      ['sqlite.StatementSync.get', () => statement.get()],
      ['sqlite.StatementSync.all', () => statement.all()],
      ['sqlite.StatementSync.run', () => statement.run()],
    ] as const)
      await expect(withEventLoopGate(async () => void call())).rejects.toMatchObject({ call: name });
    expect(statement.get()).toEqual({ one: 1 });
    database.close();
  });

  test('catches a synchronous step of an asynchronous directory walk', verifies('BL-02'), async () => {
    const walk = withEventLoopGate(async () => {
      const directory = await opendir(tmpdir());
      try {
        directory.readSync();
      } finally {
        await directory.close();
      }
    });
    await expect(walk).rejects.toMatchObject({ call: 'fs.Dir.readSync' });
  });

  test('a violation that the code swallows still fails the test', verifies('BL-02'), async () => {
    const swallowing = withEventLoopGate(async () => {
      try {
        existsSync(here);
      } catch {
        return 'hidden';
      }
      return 'not reached';
    });
    await expect(swallowing).rejects.toMatchObject({ call: 'fs.existsSync' });
  });

  test('reaches into what the guarded code starts: timers, callbacks, promises', verifies('BL-02'), async () => {
    const guarded = withEventLoopGate(
      () =>
        new Promise<void>((resolve, reject) => {
          setImmediate(() => {
            queueMicrotask(() => {
              try {
                readFileSync(here);
                resolve();
              } catch (error) {
                reject(error);
              }
            });
          });
        }),
    );
    await expect(guarded).rejects.toMatchObject({ call: 'fs.readFileSync' });
  });

  test('lets asynchronous work, the standard streams and the module loader through', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'gate-'));
    const result = await withEventLoopGate(async () => {
      await readFile(here);
      fs.writeSync(2, '');
      crypto.randomUUID();
      crypto.randomFillSync(Buffer.alloc(8));
      require('node:diagnostics_channel');
      await import(`data:text/javascript,export default ${Date.now()}`);
      await rm(folder, { recursive: true });
      return 'done';
    });
    expect(result).toBe('done');
  });

  test('the opt-out works, and only for what it wraps', verifies('BL-02'), async () => {
    const guarded = withEventLoopGate(async () => {
      expect(allowBlocking(() => readFileSync(here).length)).toBeGreaterThan(0);
      await allowBlocking(async () => {
        await Promise.resolve();
        readFileSync(here);
      });
      readFileSync(here);
    });
    await expect(guarded).rejects.toMatchObject({ call: 'fs.readFileSync' });
  });

  test('is gone afterwards, also after an exception, and the originals are back', verifies('BL-02'), async () => {
    const before = {
      read: fs.readFileSync,
      open: DatabaseSync.prototype.open,
      wait: Atomics.wait,
      named: readFileSync,
    };
    await expect(
      withEventLoopGate(async () => {
        expect(eventLoopGateInstalled()).toBe(true);
        throw new Error('from the body');
      }),
    ).rejects.toThrow('from the body');
    expect(eventLoopGateInstalled()).toBe(false);
    expect({
      read: fs.readFileSync,
      open: DatabaseSync.prototype.open,
      wait: Atomics.wait,
      named: readFileSync,
    }).toEqual(before);
    expect(readFileSync(here).length).toBeGreaterThan(0);
  });

  test(
    'overlapping scopes keep it until the last one ends, each with its own violations',
    verifies('BL-02'),
    async () => {
      let release = (): void => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      const clean = withEventLoopGate(async () => {
        await held;
        return 'clean';
      });
      await expect(withEventLoopGate(async () => void readFileSync(here))).rejects.toThrow(BlockingCallError);
      expect(eventLoopGateInstalled()).toBe(true);
      // Outside of any scope nothing is refused.
      expect(existsSync(here)).toBe(true);
      release();
      expect(await clean).toBe('clean');
      expect(eventLoopGateInstalled()).toBe(false);
    },
  );
});
