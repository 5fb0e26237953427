import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort, type KeptProcess, keepProcess, waitUntil } from './processes.ts';

/** A Redis server of its own for one test file. Nothing of it is kept. */
export interface ThrowawayRedis {
  /** `redis://127.0.0.1:<port>` */
  readonly url: string;
  readonly port: number;
  /** Stops the server, if it runs, and starts it again on the same port. It has forgotten everything. */
  restart(): Promise<void>;
  /** Stops the server and leaves it stopped until `restart`. */
  halt(): Promise<void>;
  /** Ends the server. Idempotent. */
  stop(): Promise<void>;
}

/** Why no throw-away Redis can be had here; null when one can. For `ctx.skip(reason)`. */
export async function redisMissing(): Promise<string | null> {
  return promisify(execFile)('redis-server', ['--version']).then(
    () => null,
    () => 'no redis-server on this machine: install it with "apt-get install redis-server"',
  );
}

/**
 * Starts a Redis server on the loopback that writes nothing to the disk.
 * @throws when there is no `redis-server`; ask `redisMissing` before
 */
export async function throwawayRedis(): Promise<ThrowawayRedis> {
  const folder = await mkdtemp(join(tmpdir(), 'reindeer-redis-'));
  const port = await freePort();
  let server: KeptProcess | null = null;
  const start = async (): Promise<void> => {
    const flags = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', folder];
    const started = keepProcess(['redis-server', ...flags], { cwd: folder });
    server = started;
    await waitUntil(
      () => answersPing(port),
      15_000,
      () => `Redis did not start: ${started.output()}`,
    );
  };
  const halt = async (): Promise<void> => {
    const running = server;
    server = null;
    await running?.end();
  };
  const stop = async (): Promise<void> => {
    await halt();
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await start();
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    halt,
    stop,
    restart: async () => {
      await halt();
      await start();
    },
  };
}

function answersPing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const answer = (yes: boolean): void => {
      socket.destroy();
      resolve(yes);
    };
    socket.once('connect', () => socket.write('PING\r\n'));
    socket.once('data', (data) => answer(data.toString('latin1').startsWith('+PONG')));
    socket.once('error', () => answer(false));
    socket.once('close', () => answer(false));
  });
}
