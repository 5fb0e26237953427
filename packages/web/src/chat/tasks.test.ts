import { expect, test } from 'vitest';
import { readOutcome, readSteps, type Task, taskEvent } from './tasks.ts';

const play = (...events: object[]): Task | null => {
  let task: Task | undefined;
  for (const event of events) task = taskEvent(task, event as never) ?? task;
  return task ?? null;
};
const step = (id: string, more: object = {}) => ({
  type: 'task_running',
  message: { id, type: 'ai', content: 'hm', ...more },
});

test('a task collects its steps once each, and ends as the event says', () => {
  const task = play(
    { type: 'task_started', description: 'Look', subagent_type: 'bash' },
    step('a', { tool_calls: [{ name: 'bash', args: { command: 'ls\n -l' } }] }),
    step('a'),
    step('b', { type: 'tool', name: 'bash', status: 'error', content: 'no' }),
    { type: 'task_failed', error: 'broken', usage: { total_tokens: 12 }, model_name: 'm' },
  );
  expect(task).toMatchObject({
    status: 'failed',
    description: 'Look',
    type: 'bash',
    stepCount: 2,
    error: 'broken',
    tokens: 12,
    model: 'm',
  });
  expect(task?.steps).toEqual([
    { kind: 'said', id: 'a', text: 'hm', calls: [{ name: 'bash', hint: 'ls -l' }] },
    { kind: 'result', id: 'b', name: 'bash', text: 'no', failed: true },
  ]);
});

test('an attempt that goes on after a crash keeps the steps; other events are none of a task', () => {
  expect(play({ type: 'task_started' }, step('a'), { type: 'task_started' })?.steps).toHaveLength(1);
  expect(taskEvent(undefined, { type: 'llm_retry' })).toBeNull();
});

test('steps are bounded, their number is not', () => {
  const task = play(...Array.from({ length: 250 }, (_none, index) => step(`s${index}`)));
  expect(task?.steps).toHaveLength(200);
  expect(task?.stepCount).toBe(250);
});

test('an outcome is read from the result of the call, and unknown words count as failed', () => {
  expect(readOutcome({})).toBeNull();
  expect(readOutcome({ subagent_status: 'polling_timed_out' })?.status).toBe('timed_out');
  expect(readOutcome({ subagent_status: 'strange' })?.status).toBe('failed');
});

test('kept events give the steps again', () => {
  expect(readSteps([{ content: step('a') }, { content: 5 }, null])).toHaveLength(1);
});
