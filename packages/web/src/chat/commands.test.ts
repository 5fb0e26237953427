import { expect, test } from 'vitest';
import { begunCommand, offers, readCommand } from './commands.ts';

const skills = [
  { name: 'chart', description: 'Draws.', enabled: true },
  { name: 'old', description: 'Off.', enabled: false },
  { name: 'status', description: 'Reserved.', enabled: true },
  { name: 'help', description: 'In the way.', enabled: true },
];

test('a command is a command only where nothing else can be meant', () => {
  expect(readCommand('/goal  all tests\npass ')).toEqual({ name: 'goal', what: 'set', objective: 'all tests\npass' });
  expect(readCommand('/goal')).toEqual({ name: 'goal', what: 'show' });
  expect(readCommand('/goal clear')).toEqual({ name: 'goal', what: 'clear' });
  expect(readCommand(' /compact ')).toEqual({ name: 'compact' });
  for (const text of ['/new york is large', '/chart the numbers', 'see /help', '/helpme', '/etc/hosts', '/', ''])
    expect(readCommand(text), text).toBeNull();
});

test('names are offered while one is being written, and no longer', () => {
  expect([begunCommand('/'), begunCommand('/ch'), begunCommand('/chart x'), begunCommand(' /ch')]).toEqual([
    '',
    'ch',
    null,
    null,
  ]);
  expect(offers('', skills).map(({ name }) => name)).toEqual(['goal', 'compact', 'new', 'help', 'chart']);
  expect(offers('c', skills).map(({ name }) => name)).toEqual(['compact', 'chart']);
  expect(offers('art', skills)).toEqual([{ name: 'chart', skill: { description: 'Draws.' } }]);
  const many = Array.from({ length: 50 }, (_none, index) => ({
    name: `chart-${index}`,
    description: '',
    enabled: true,
  }));
  expect(offers('', many)).toHaveLength(6);
});
