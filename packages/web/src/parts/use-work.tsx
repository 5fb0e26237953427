import { useCallback, useEffect, useRef, useState } from 'react';
import { asTrouble } from '../api/trouble.ts';
import type { Trouble } from '../chat/state.ts';
import { useSay } from './page-context.tsx';
import { troubleText } from './trouble-text.ts';

/** One thing that the user asked for: busy until it is done, and what went wrong. */
export function useWork() {
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const run = useCallback((work: () => Promise<void>) => {
    setBusy(true);
    setTrouble(null);
    work()
      .catch((error: unknown) => setTrouble(asTrouble(error)))
      .finally(() => setBusy(false));
  }, []);
  return { busy, trouble, run };
}

export interface Loaded<Value> {
  /** null = not there yet. The last one stays while it is read again. */
  readonly value: Value | null;
  readonly trouble: Trouble | null;
  readonly reload: () => void;
  readonly set: (value: Value) => void;
}

/** What a page shows, read when it opens. Of several readings under way the last one counts. */
export function useLoad<Value>(load: (signal: AbortSignal) => Promise<Value>): Loaded<Value> {
  const [value, setValue] = useState<Value | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  const current = useRef(new AbortController());
  const reload = useCallback(() => {
    current.current.abort();
    const turn = new AbortController();
    current.current = turn;
    load(turn.signal).then(
      (found) => {
        if (turn.signal.aborted) return;
        setValue(found);
        setTrouble(null);
      },
      (error: unknown) => {
        if (!turn.signal.aborted) setTrouble(asTrouble(error));
      },
    );
  }, [load]);
  useEffect(() => {
    reload();
    return () => current.current.abort();
  }, [reload]);
  const set = useCallback((given: Value) => {
    // What is still being read is older than this.
    current.current.abort();
    setValue(given);
    setTrouble(null);
  }, []);
  return { value, trouble, reload, set };
}

/** What went wrong, said at once; nothing when nothing did. */
export function WorkTrouble({ trouble }: { readonly trouble: Trouble | null }) {
  const say = useSay();
  if (trouble === null) return null;
  return (
    <p role="alert" className="trouble">
      {troubleText(trouble, say)}
    </p>
  );
}
