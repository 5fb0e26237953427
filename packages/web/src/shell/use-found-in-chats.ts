import { useEffect, useState } from 'react';
import type { Api, FoundInChats } from '../api/api.ts';
import { asTrouble } from '../api/trouble.ts';
import type { Trouble } from '../chat/state.ts';

/** Milliseconds without a key before the server is asked. */
const REST_MS = 250;
/** A single letter is in every chat. */
const LEAST = 2;

const NOTHING: FoundInChats = { chats: [], complete: true };

/** Chats in which something is said, asked when the typing rests; a question that was overtaken is cut short. */
export function useFoundInChats(
  api: Api,
  text: string,
): { readonly found: FoundInChats; readonly looking: boolean; readonly trouble: Trouble | null } {
  const wanted = text.trim();
  const [answer, setAnswer] = useState<{ readonly to: string; readonly found: FoundInChats } | null>(null);
  const [trouble, setTrouble] = useState<Trouble | null>(null);
  useEffect(() => {
    setTrouble(null);
    if (wanted.length < LEAST) return;
    const turn = new AbortController();
    const timer = setTimeout(() => {
      api.findInChats(wanted, turn.signal).then(
        (found) => {
          if (!turn.signal.aborted) setAnswer({ to: wanted, found });
        },
        (error: unknown) => {
          if (!turn.signal.aborted) setTrouble(asTrouble(error));
        },
      );
    }, REST_MS);
    return () => {
      clearTimeout(timer);
      turn.abort();
    };
  }, [api, wanted]);
  const known = answer?.to === wanted;
  return {
    found: known && answer !== null ? answer.found : NOTHING,
    looking: wanted.length >= LEAST && !known && trouble === null,
    trouble,
  };
}
