import { useCallback, useEffect, useRef, useState } from 'react';
import type { Api, ThreadEntry } from '../api/api.ts';
import { asTrouble } from '../api/trouble.ts';
import type { Trouble } from '../chat/state.ts';

const PAGE = 50;
/** How often the list is read while somebody looks: scheduled tasks, other tabs and other programs make chats, too. */
const LOOK_MS = 10_000;

export interface Threads {
  readonly entries: readonly ThreadEntry[];
  readonly more: boolean;
  readonly loading: boolean;
  readonly trouble: Trouble | null;
  readonly refresh: () => void;
  readonly loadMore: () => void;
}

/**
 * The list of threads, newest first. It is read again when something changed, when the page is looked at again, and now and then while it is
 * looked at. A look of that kind that fails says nothing: the list stays, and the connection has its own words.
 */
export function useThreads(api: Api): Threads {
  const [entries, setEntries] = useState<readonly ThreadEntry[]>([]);
  const [more, setMore] = useState(false);
  const [loading, setLoading] = useState(true);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const wanted = useRef(PAGE);
  const asked = useRef(0);
  const answered = useRef(0);

  const read = useCallback(
    (quiet: boolean) => {
      // What somebody asked for is not overtaken by a look.
      if (quiet && answered.current !== asked.current) return;
      const turn = ++asked.current;
      const limit = wanted.current;
      // One more than is shown tells whether there are more.
      api.searchThreads(limit + 1, 0).then(
        (found) => {
          // A later question has been asked: its answer counts.
          if (turn !== asked.current) return;
          answered.current = turn;
          const now = found.slice(0, limit);
          setEntries((before) => (JSON.stringify(before) === JSON.stringify(now) ? before : now));
          setMore(found.length > limit);
          setTrouble(null);
          setLoading(false);
        },
        (error: unknown) => {
          if (turn !== asked.current) return;
          answered.current = turn;
          if (quiet) return;
          setTrouble(asTrouble(error));
          setLoading(false);
        },
      );
    },
    [api],
  );
  const refresh = useCallback(() => read(false), [read]);

  const loadMore = useCallback(() => {
    wanted.current = Math.min(wanted.current + PAGE, 999);
    refresh();
  }, [refresh]);

  useEffect(() => {
    refresh();
    const onVisible = () => {
      if (document.visibilityState === 'visible') refresh();
    };
    document.addEventListener('visibilitychange', onVisible);
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') read(true);
    }, LOOK_MS);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [read, refresh]);

  return { entries, more, loading, trouble, refresh, loadMore };
}
