import { useEffect } from 'react';

/**
 * Looks again whenever `after` so many milliseconds have passed, as long as the page is looked at, and at once when somebody comes back to it. A
 * look that fails does not end the looking.
 *
 * @param after asked before each wait; a new function begins a new one
 */
export function useLookAgain(look: () => void, after: () => number): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (document.visibilityState === 'visible') look();
        wait();
      }, after());
    };
    const onVisible = () => {
      if (document.visibilityState !== 'visible') return;
      look();
      wait();
    };
    wait();
    document.addEventListener('visibilitychange', onVisible);
    return () => {
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [look, after]);
}
