import { VirtualClock, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { CANCELLED, Executions } from './executions.ts';
import type { SubagentOutcome } from './metadata.ts';

const done: SubagentOutcome = { status: 'completed', stopReason: null, result: 'yes', error: null };
const late: SubagentOutcome = { status: 'timed_out', stopReason: null, result: '', error: 'late' };

test('the first terminal status stays, and its outcome is there with it', verifies('SA-01', 'SA-02'), async () => {
  const execution = new Executions(new VirtualClock()).create('1', 'one');
  expect([execution.status, execution.outcome]).toEqual(['pending', null]);
  execution.begin();
  expect(execution.status).toBe('running');
  const heard = execution.terminal.then((outcome) => [execution.status, outcome, execution.outcome]);
  expect(execution.settle(done)).toBe(true);
  expect([execution.settle(late), execution.settle(CANCELLED)]).toEqual([false, false]);
  execution.begin();
  expect([execution.status, execution.outcome]).toEqual(['completed', done]);
  expect(await heard).toEqual(['completed', done, done]);
});

test(
  'only what has ended is forgotten; cancels of the unknown and the ended change nothing',
  verifies('SA-04', 'SA-06'),
  () => {
    const executions = new Executions(new VirtualClock());
    const execution = executions.create('1', 'one');
    expect(executions.cleanup('1')).toBe(false);
    execution.begin();
    expect(executions.cleanup('1')).toBe(false);
    // Terminal is not ended: its tools may still be closing.
    execution.settle(done);
    expect(executions.cleanup('1')).toBe(false);
    expect(executions.get('1')).toBe(execution);
    execution.end();
    expect(executions.requestCancel('1', new Error('x'))).toBe(false);
    expect(execution.signal.aborted).toBe(false);
    expect(executions.cleanup('1')).toBe(true);
    expect(executions.cleanup('1')).toBe(false);
    expect(executions.requestCancel('nobody', new Error('x'))).toBe(false);
    expect(executions.size).toBe(0);
  },
);

test('a cancel settles and stops; a drain stops all and is bounded', verifies('SA-01', 'SA-08'), async () => {
  const clock = new VirtualClock();
  const executions = new Executions(clock);
  const [one, two] = [executions.create('1', 'one'), executions.create('2', 'two')];
  expect(executions.requestCancel('1', new Error('x'))).toBe(true);
  expect([one.status, one.signal.aborted]).toEqual(['cancelled', true]);
  expect(executions.requestCancel('1', new Error('x'))).toBe(false);
  one.end();
  const draining = executions.drain(1_000, new Error('stop'));
  expect(two.signal.aborted).toBe(true);
  await clock.advance(1_000);
  expect(await draining).toEqual(['two']);
  two.end();
  expect(await executions.drain(1_000, new Error('stop'))).toEqual([]);
  expect(clock.sleeping).toBe(0);
});
