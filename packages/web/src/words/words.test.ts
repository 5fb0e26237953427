import { expect, test } from 'vitest';
import { chooseLanguage, english, isWordKey, moneyText, sizeText, speak, timeLeft } from './words.ts';

const names = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort();

test('both languages have the same words with the same gaps, and none is empty', () => {
  const chinese = speak('zh');
  for (const [key, text] of Object.entries(english)) {
    const translated = isWordKey(key) ? chinese(key) : '';
    expect(translated.trim(), key).not.toBe('');
    expect(names(translated), key).toEqual(names(text));
  }
});

test('a time that is left is short', () => {
  const say = speak('en');
  expect([400, 30_000, 300_000, 7_200_000, 9_000_000].map((time) => timeLeft(time, say))).toEqual([
    '1 s',
    '30 s',
    '5 min',
    '2 h',
    '2.5 h',
  ]);
});

test('gaps are filled with what is given, and only with that', () => {
  expect(speak('en')('composer.remove', { name: '{name} $& x' })).toBe('Remove {name} $& x');
  expect(speak('zh')('composer.remove', { name: 'a' })).toBe('移除 a');
  expect(speak('en')('composer.remove', {})).toBe('Remove {name}');
});

test('the language is the one that was chosen, else the first preference that we speak', () => {
  expect(chooseLanguage('zh', ['en'])).toBe('zh');
  expect(chooseLanguage(null, ['de-DE', 'zh-CN', 'en'])).toBe('zh');
  expect(chooseLanguage('xx', ['fr'])).toBe('en');
});

test('money is written as its currency is, also a currency that is none', () => {
  expect(moneyText(12.5, 'USD', 'en')).toBe('$12.50');
  expect(moneyText(0.000123, 'USD', 'en')).toBe('$0.000123');
  expect(moneyText(3, 'deer coins', 'en')).toBe('3.00 deer coins');
});

test('sizes are short', () => {
  expect([0, 900, 1536, 52_428_800, 1_500_000_000].map(sizeText)).toEqual([
    '0 B',
    '900 B',
    '1.5 KB',
    '50 MB',
    '1.4 GB',
  ]);
});
