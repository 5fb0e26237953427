import { chineseActions, englishActions } from './actions.ts';
import { chineseChannels, englishChannels } from './channels.ts';
import { chinese } from './chinese.ts';
import { english as chat } from './english.ts';
import { chinesePages } from './pages-chinese.ts';
import { englishPages } from './pages-english.ts';
import { chineseSchedules, englishSchedules } from './schedules.ts';

/** The words of the chat, and those of the pages beside it. */
export const english = {
  ...chat,
  ...englishPages,
  ...englishSchedules,
  ...englishActions,
  ...englishChannels,
} as const;

export type WordKey = keyof typeof english;
export type Language = 'en' | 'zh';
export type Say = (key: WordKey, values?: Readonly<Record<string, string | number>>) => string;

const TABLES: Readonly<Record<Language, Readonly<Record<WordKey, string>>>> = {
  en: english,
  zh: { ...chinese, ...chinesePages, ...chineseSchedules, ...chineseActions, ...chineseChannels },
};

export function speak(language: Language): Say {
  const table = TABLES[language];
  return (key, values) => fill(table[key], values ?? {});
}

function fill(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(values, name) ? String(values[name]) : whole,
  );
}

/** The language of the first preference that we speak; English otherwise. */
export function chooseLanguage(kept: string | null, preferred: readonly string[]): Language {
  if (kept === 'en' || kept === 'zh') return kept;
  for (const tag of preferred) {
    if (/^zh\b/i.test(tag)) return 'zh';
    if (/^en\b/i.test(tag)) return 'en';
  }
  return 'en';
}

export function isWordKey(key: string): key is WordKey {
  return Object.hasOwn(english, key);
}

/** 1536 → "1.5 KB". Units of 1024. */
export function sizeText(bytes: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : Math.round(value * 10) / 10} ${units[unit]}`;
}

/** 1234.5 → "1,235", as the language writes numbers. */
export function whole(value: number, language: Language): string {
  return new Intl.NumberFormat(language === 'zh' ? 'zh-CN' : 'en').format(Math.round(value));
}

/** A time that is left, in the largest unit that says enough. */
export function timeLeft(milliseconds: number, say: Say): string {
  const seconds = Math.max(1, Math.round(milliseconds / 1000));
  if (seconds < 90) return say('time.seconds', { count: seconds });
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return say('time.minutes', { count: minutes });
  return say('time.hours', { count: Math.round(minutes / 6) / 10 });
}

/** When something happened, as the language writes it. */
export function timeText(at: number | null, language: Language): string {
  if (at === null) return '';
  return new Intl.DateTimeFormat(language === 'zh' ? 'zh-CN' : 'en', {
    dateStyle: 'medium',
    timeStyle: 'short',
  }).format(at);
}

/** An amount of money, small ones with all their places; a currency that nobody knows is written behind it. */
export function moneyText(amount: number, currency: string, language: Language): string {
  const locale = language === 'zh' ? 'zh-CN' : 'en';
  const places = { minimumFractionDigits: 2, maximumFractionDigits: amount < 1 ? 6 : 2 };
  try {
    return new Intl.NumberFormat(locale, { style: 'currency', currency, ...places }).format(amount);
  } catch {
    return `${new Intl.NumberFormat(locale, places).format(amount)} ${currency}`.trim();
  }
}
