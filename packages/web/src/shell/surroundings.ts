import { useEffect, useState } from 'react';
import type { Storage } from '../api/token.ts';
import type { AppParts } from '../app.tsx';

const THEME_KEY = 'reindeer.theme';
export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

export function themeOf(local: Storage): Theme {
  const kept = local.getItem(THEME_KEY);
  return THEMES.find((theme) => theme === kept) ?? 'system';
}

export function keepTheme(local: Storage, theme: Theme): void {
  local.setItem(THEME_KEY, theme);
  applyTheme(local);
}

/** The style sheet knows both lights; this only says which one counts. */
export function applyTheme(local: Storage): void {
  const theme = themeOf(local);
  const root = document.documentElement;
  if (theme === 'system') root.removeAttribute('data-theme');
  else root.setAttribute('data-theme', theme);
}

export function useConnection(parts: AppParts): boolean {
  const [reached, setReached] = useState(true);
  useEffect(() => parts.onConnection(setReached), [parts]);
  useEffect(() => {
    if (reached) return;
    // Asks again until somebody answers; any answer changes `reached` through the listener.
    const timer = setInterval(() => {
      parts.api.models().catch(() => {});
    }, 3_000);
    return () => clearInterval(timer);
  }, [reached, parts]);
  return reached;
}

/**
 * The list of chats where there is no room for it beside the page. It takes the focus when it opens and gives it back; Escape closes it, and so
 * does a window that becomes wide, where it always shows.
 */
export function useListOverPage() {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!shown) return;
    const before = document.activeElement;
    document.querySelector<HTMLElement>('nav .only-narrow')?.focus();
    const leave = new AbortController();
    const { signal } = leave;
    const onKey = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) setShown(false);
    };
    addEventListener('keydown', onKey, { signal });
    matchMedia('(max-width: 760px)').addEventListener('change', () => setShown(false), { signal });
    return () => {
      leave.abort();
      if (before instanceof HTMLElement) before.focus();
    };
  }, [shown]);
  return [shown, setShown] as const;
}
