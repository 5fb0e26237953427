import { EventEmitter } from 'node:events';
import { NO_LOG, ShutdownOwnership } from '@reindeer/protocol';
import { deferred, flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { stopWithProcess } from './exit.ts';

function setUp() {
  const killed: string[] = [];
  const process = Object.assign(new EventEmitter(), {
    pid: 7,
    kill: (pid: number, signal: string) => killed.push(`${pid} ${signal}`),
  });
  const ownership = new ShutdownOwnership();
  const stopped = deferred();
  const shutdowns: string[] = [];
  const shutdown = async () => {
    shutdowns.push('begun');
    await stopped.promise;
  };
  const install = () => stopWithProcess({ process, ownership, logger: NO_LOG, shutdown });
  return { process, killed, ownership, stopped, shutdowns, install };
}

test.each(['SIGTERM', 'SIGINT', 'SIGHUP'])(
  'without a host %s stops the sandboxes once, and then ends the process as it would have',
  verifies('SEED-001-65', 'SB-68'),
  async (signal) => {
    const { process, killed, shutdowns, stopped, install } = setUp();
    install();
    process.emit(signal);
    process.emit(signal);
    process.emit('SIGTERM');
    await flush();
    expect([shutdowns, killed]).toEqual([['begun'], []]);
    stopped.resolve();
    await flush();
    expect(killed).toEqual([`7 ${signal}`]);
    expect(process.eventNames()).toEqual([]);
  },
);

test('who listened before is called as ever, and decides about the end', verifies('SB-68'), async () => {
  const { process, killed, stopped, install } = setUp();
  const heard: string[] = [];
  process.on('SIGTERM', () => heard.push('before'));
  install();
  process.emit('SIGTERM');
  stopped.resolve();
  await flush();
  expect([heard, killed]).toEqual([['before'], []]);
});

test('a stop that fails is said, and the process ends all the same', async () => {
  const { process, killed, stopped, install } = setUp();
  install();
  process.emit('SIGINT');
  stopped.reject(new Error('no engine'));
  await flush();
  expect(killed).toEqual(['7 SIGINT']);
});

test('where no listener can be installed nothing fails', verifies('SB-68'), () => {
  const { process, install } = setUp();
  Object.assign(process, {
    on: () => {
      throw new Error('not on this thread');
    },
  });
  install()();
});

test('ownership is declared until each who declared it has withdrawn', () => {
  const { ownership } = setUp();
  const first = ownership.declare();
  const second = ownership.declare();
  first();
  first();
  expect(ownership.declared).toBe(true);
  second();
  expect(ownership.declared).toBe(false);
});
