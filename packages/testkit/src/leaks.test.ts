import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { createServer } from 'node:net';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LeakWatch, leakCheck, verifies } from './index.ts';

/** Starts something and answers how to stop it. */
type Start = () => Promise<() => Promise<unknown>>;

describe('the leak check', () => {
  const watch = new LeakWatch();
  beforeAll(() => watch.enable());
  afterAll(() => watch.disable());

  const starts: Record<string, Start> = {
    Timeout: async () => {
      const timer = setInterval(() => {}, 60_000);
      return async () => clearInterval(timer);
    },
    'Timeout (unref)': async () => {
      const timer = setTimeout(() => {}, 60_000).unref();
      return async () => clearTimeout(timer);
    },
    TCPSERVERWRAP: async () => {
      const server = createServer().listen(0, '127.0.0.1');
      await once(server, 'listening');
      return () => new Promise((resolve) => server.close(resolve));
    },
    PROCESSWRAP: async () => {
      const child = spawn('sleep', ['60'], { stdio: 'ignore' });
      return async () => {
        child.kill('SIGKILL');
        await once(child, 'exit');
      };
    },
    WORKER: async () => {
      const worker = new Worker('setInterval(() => {}, 1000)', { eval: true });
      await once(worker, 'online');
      return () => worker.terminate();
    },
    file: async () => {
      const file = await open(new URL(import.meta.url));
      return () => file.close();
    },
  };

  for (const [name, start] of Object.entries(starts))
    test(`has teeth for ${name}, and is content once it has ended`, verifies('ND-05'), async () => {
      await watch.begin();
      const stop = await start();
      const leaks = await watch.end(0);
      expect(leaks.map((leak) => leak.type)).toContain(name.split(' ')[0]);
      await stop();
      expect(await watch.end(5000)).toEqual([]);
    });

  test('does not count what was there before', async () => {
    const timer = setInterval(() => {}, 60_000);
    await watch.begin();
    expect(await watch.end(0)).toEqual([]);
    clearInterval(timer);
  });
});

describe('leakCheck() in a describe', () => {
  leakCheck();

  test('passes a test that cleans up', async () => {
    const timer = setTimeout(() => {}, 60_000);
    await Promise.resolve();
    clearTimeout(timer);
  });
});

describe('leakCheck() with a known resource', () => {
  leakCheck({ ignore: (leak) => leak.where.includes('keepOnPurpose') });
  const kept: NodeJS.Timeout[] = [];
  afterAll(() => {
    for (const timer of kept) clearTimeout(timer);
  });

  test('lets it pass', () => {
    const keepOnPurpose = (): void => void kept.push(setTimeout(() => {}, 60_000));
    keepOnPurpose();
  });
});
