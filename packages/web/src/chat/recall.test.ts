import { expect, test } from 'vitest';
import { readMessage } from './message.ts';
import { recalled, saidBefore } from './recall.ts';

test('what was written comes up again from an empty field, and goes away again', () => {
  const said = ['one', 'two', 'one'];
  const press = (place: number, key: string) => recalled(said, place, said[place] ?? '', key);
  expect([press(3, 'ArrowUp'), press(2, 'ArrowUp'), press(1, 'ArrowUp'), press(0, 'ArrowUp')]).toEqual([2, 1, 0, null]);
  expect([press(0, 'ArrowDown'), press(2, 'ArrowDown'), press(3, 'ArrowDown')]).toEqual([1, 3, null]);
  // A text of one's own, and one that was changed, stay.
  expect(recalled(said, 3, 'half a thought', 'ArrowUp')).toBeNull();
  expect(recalled(said, 1, 'two and more', 'ArrowDown')).toBeNull();
  expect(recalled(said, 3, '', 'Enter')).toBeNull();
  expect(recalled([], 0, '', 'ArrowUp')).toBeNull();
});

test('only words of the user count, each once in a row', () => {
  const wires = [
    { type: 'human', content: 'first' },
    { type: 'ai', content: 'an answer' },
    { type: 'human', content: 'hidden', additional_kwargs: { hide_from_ui: true } },
    { type: 'human', content: 'again' },
    { type: 'human', content: 'again' },
    { type: 'human', content: '' },
  ];
  const messages = wires.map((wire, index) => readMessage(wire, index)).filter((message) => message !== null);
  expect(saidBefore(messages)).toEqual(['first', 'again']);
});
