import { expect, test } from 'vitest';
import { readInterrupts, resumeValue } from './interrupts.ts';

const value = {
  actionRequests: [
    { name: 'bash', args: { command: 'ls' }, description: 'Runs ls' },
    { name: 'write_file', args: {} },
  ],
  reviewConfigs: [{ actionName: 'bash', allowedDecisions: ['approve', 'reject'] }],
};

test('reads what waits for approval, from lists and from maps of tasks, each once', () => {
  const [interrupt] = readInterrupts([{ id: 'i', value }]);
  expect(interrupt?.actions).toEqual([
    { name: 'bash', args: { command: 'ls' }, description: 'Runs ls', allowed: ['approve', 'reject'] },
    { name: 'write_file', args: {}, description: null, allowed: ['approve', 'edit', 'reject'] },
  ]);
  expect(readInterrupts({ t1: [{ id: 'i', value }], t2: [{ id: 'i', value }] })).toHaveLength(1);
  expect(readInterrupts([{ value: 'Sure?' }])).toEqual([{ id: null, actions: null, expiresAt: null, value: 'Sure?' }]);
  expect(readInterrupts([{ value: { expires_at: '2026-01-01T00:00:00.000Z' } }])[0]?.expiresAt).toBe(
    Date.UTC(2026, 0, 1),
  );
  expect(readInterrupts('nonsense')).toEqual([]);
});

test('reads the names of other languages as well', () => {
  const [interrupt] = readInterrupts([
    {
      value: {
        action_requests: [{ name: 'x', args: { a: 1 } }],
        review_configs: [{ action_name: 'x', allowed_decisions: ['edit'] }],
      },
    },
  ]);
  expect(interrupt?.actions).toMatchObject([{ name: 'x', args: { a: 1 }, allowed: ['edit'] }]);
});

test('answers one interrupt directly and several by their ids', () => {
  const one = readInterrupts([{ id: 'i', value }]);
  expect(resumeValue(one, [[{ type: 'approve' }, { type: 'edit', name: 'write_file', args: { path: 'x' } }]])).toEqual({
    decisions: [{ type: 'approve' }, { type: 'edit', editedAction: { name: 'write_file', args: { path: 'x' } } }],
  });
  const two = readInterrupts([
    { id: 'i', value },
    { id: 'j', value: 'Sure?' },
  ]);
  expect(resumeValue(two, [[{ type: 'reject', message: 'no' }], 'yes'])).toEqual({
    i: { decisions: [{ type: 'reject', message: 'no' }] },
    j: 'yes',
  });
});
