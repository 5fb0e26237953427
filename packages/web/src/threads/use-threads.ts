import { useCallback, useEffect, useRef, useState } from 'react';
import type { Api, ThreadEntry } from '../api/api.ts';
import { asTrouble } from '../api/trouble.ts';
import type { Trouble } from '../chat/state.ts';

const PAGE = 50;

export interface Threads {
  readonly entries: readonly ThreadEntry[];
  readonly more: boolean;
  readonly loading: boolean;
  readonly trouble: Trouble | null;
  readonly refresh: () => void;
  readonly loadMore: () => void;
}

/** The list of threads, newest first. It is read again when something changed and when the page is looked at again. */
export function useThreads(api: Api): Threads {
  const [entries, setEntries] = useState<readonly ThreadEntry[]>([]);
  const [more, setMore] = useState(false);
  const [loading, setLoading] = useState(true);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const wanted = useRef(PAGE);
  const asked = useRef(0);

  const refresh = useCallback(() => {
    const turn = ++asked.current;
    const limit = wanted.current;
    // One more than is shown tells whether there are more.
    api.searchThreads(limit + 1, 0).then(
      (found) => {
        // A later question has been asked: its answer counts.
        if (turn !== asked.current) return;
        setEntries(found.slice(0, limit));
        setMore(found.length > limit);
        setTrouble(null);
        setLoading(false);
      },
      (error: unknown) => {
        if (turn !== asked.current) return;
        setTrouble(asTrouble(error));
        setLoading(false);
      },
    );
  }, [api]);

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
    return () => document.removeEventListener('visibilitychange', onVisible);
  }, [refresh]);

  return { entries, more, loading, trouble, refresh, loadMore };
}
