import { EventEmitter } from 'node:events';
import { NO_LOG } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { connectSignals } from './signals.ts';

const setUp = () => {
  const process = new EventEmitter();
  const calls: string[] = [];
  const disconnect = connectSignals({
    process,
    logger: { ...NO_LOG, info: (text) => calls.push(text) },
    begin: (code) => calls.push(`begin ${code}`),
    unfinished: () => ['runs', 'database'],
    exit: (code) => calls.push(`exit ${code}`),
    say: (text) => calls.push(text),
  });
  return { process, calls, disconnect };
};

describe('signals', () => {
  test.each(['SIGTERM', 'SIGINT', 'SIGHUP'])(
    '%s begins the stop once; more of any kind do not shorten it',
    verifies('GW-14', 'SEED-001-65'),
    (name) => {
      const { process, calls } = setUp();
      for (const signal of [name, name, 'SIGTERM', 'SIGINT', 'SIGHUP']) process.emit(signal);
      expect(calls.filter((call) => call.startsWith('begin'))).toEqual(['begin 0']);
      expect(calls.some((call) => call.startsWith('exit'))).toBe(false);
      // Said once, in words, before a wait that can take seconds.
      expect(calls.filter((call) => call.startsWith('Stopping: running work'))).toHaveLength(1);
    },
  );

  test('SIGQUIT leaves with a code and the list', () => {
    const { process, calls } = setUp();
    process.emit('SIGTERM');
    process.emit('SIGQUIT');
    expect(calls).toEqual([
      'begin 0',
      expect.stringContaining('Stopping'),
      'Leaving at once. Unfinished: runs, database.',
      'exit 131',
    ]);
  });

  test('faults begin the same stop, once', verifies('GW-25'), () => {
    const { process, calls, disconnect } = setUp();
    process.emit('uncaughtException', new Error('x'));
    process.emit('unhandledRejection', 'y');
    process.emit('SIGTERM');
    expect(calls[0]).toBe('begin 1');
    expect(calls.filter((call) => call.startsWith('begin'))).toHaveLength(1);
    disconnect();
    expect(process.eventNames()).toEqual([]);
  });
});
