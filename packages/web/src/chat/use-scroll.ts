import { useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';

/** Turns that are drawn at first, and more at each step back: a chat may have thousands. */
const STEP = 40;
/** Pixels from the top at which older turns are fetched out. */
const NEAR_TOP = 600;

/**
 * Keeps the end in sight while it grows, unless the reader has scrolled away from it; and draws the newest turns only, older ones when the reader
 * comes near them. What is drawn once stays.
 */
export function useScroll(turns: readonly unknown[]) {
  const area = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLElement>(null);
  const sticky = useRef(true);
  const [away, setAway] = useState(false);
  const { first, showOlder } = useFirstTurn(turns.length, area);
  const toEnd = useCallback(() => {
    sticky.current = true;
    setAway(false);
    area.current?.scrollTo({ top: area.current.scrollHeight });
  }, []);
  const onScroll = useCallback(() => {
    const element = area.current;
    if (element === null) return;
    const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
    sticky.current = distance < 60;
    setAway(distance > 240);
    if (!sticky.current && element.scrollTop < NEAR_TOP) showOlder();
  }, [showOlder]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: every change of the turns can move the end
  useLayoutEffect(() => {
    if (sticky.current) area.current?.scrollTo({ top: area.current.scrollHeight });
  }, [turns]);
  useEffect(() => {
    // Markdown that arrives later, unfolded cards and pictures change the height as well.
    const observer = new ResizeObserver(() => {
      if (sticky.current) area.current?.scrollTo({ top: area.current.scrollHeight });
    });
    // The area itself shrinks when the composer grows.
    for (const element of [content.current, area.current]) if (element !== null) observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { area, content, away, toEnd, onScroll, first, showOlder };
}

/** Which turn is the first one that is drawn. Going back keeps what the reader looks at where it is. */
function useFirstTurn(count: number, area: { readonly current: HTMLElement | null }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const latest = Math.max(0, count - STEP);
  // A summary may have taken turns away.
  const first = Math.min(chosen ?? latest, latest);
  if (chosen === null && count > 0) setChosen(first);
  /** How far the reader is from the end; null = nothing is to be kept. */
  const kept = useRef<number | null>(null);
  const showOlder = useCallback(() => {
    if (first === 0) return;
    const element = area.current;
    kept.current = element === null ? null : element.scrollHeight - element.scrollTop;
    setChosen(Math.max(0, first - STEP));
  }, [first, area]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another first turn is another height above
  useLayoutEffect(() => {
    if (kept.current !== null && area.current !== null)
      area.current.scrollTop = area.current.scrollHeight - kept.current;
    kept.current = null;
  }, [first, area]);
  return { first, showOlder };
}
