import { useEffect, useRef } from 'react';
import type { Storage } from '../api/token.ts';
import type { ChatState } from '../chat/state.ts';
import type { WordKey } from '../words/words.ts';
import { usePage } from './page-context.tsx';

const KEY = 'reindeer.notify';
/** A run shorter than this is still being looked at. */
export const LONG_MS = 10_000;

export function wantsNotices(local: Storage): boolean {
  return local.getItem(KEY) === 'on' && permission() === 'granted';
}

/** Asks the browser only now, when somebody wants it. */
export async function switchNotices(local: Storage, on: boolean): Promise<'on' | 'off' | 'denied' | 'unsupported'> {
  if (!on) {
    local.removeItem(KEY);
    return 'off';
  }
  if (permission() === 'unsupported') return 'unsupported';
  if ((await Notification.requestPermission()) !== 'granted') return 'denied';
  local.setItem(KEY, 'on');
  return 'on';
}

function permission(): NotificationPermission | 'unsupported' {
  // Missing on plain http from another machine.
  return typeof Notification === 'undefined' || !window.isSecureContext ? 'unsupported' : Notification.permission;
}

/** What to say of a run that has ended; null = nothing: somebody looks on, ended it, or has not waited for it. */
export function endNotice(run: {
  readonly tookMs: number;
  readonly hidden: boolean;
  readonly ended: ChatState['ended'];
  readonly asks: boolean;
}): WordKey | null {
  if (!run.hidden || run.tookMs < LONG_MS || run.ended === null || run.ended.how === 'stopped') return null;
  if (run.ended.how !== 'success') return 'notify.failed';
  return run.asks ? 'notify.asks' : 'notify.done';
}

/** Tells somebody who looks elsewhere that a long run has ended. */
export function useEndNotice(local: Storage, state: ChatState): void {
  const { say } = usePage();
  const began = useRef<number | null>(null);
  const { run, ended, title, interrupts, threadId } = state;
  useEffect(() => {
    if (run !== null) {
      began.current ??= performance.now();
      return;
    }
    if (began.current === null) return;
    const tookMs = performance.now() - began.current;
    began.current = null;
    const hidden = document.visibilityState === 'hidden';
    const key = endNotice({ tookMs, hidden, ended, asks: interrupts.length > 0 });
    if (key === null || !wantsNotices(local)) return;
    try {
      // The same tag: a newer one takes the place of an older one of the chat.
      const notice = new Notification(title ?? say('app.name'), { body: say(key), tag: threadId, icon: '/icon.svg' });
      notice.onclick = () => {
        window.focus();
        notice.close();
      };
    } catch {
      // Some phones show them through a service worker only.
    }
  }, [run, ended, title, interrupts, threadId, local, say]);
}
