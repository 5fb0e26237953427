import { createContext, type ReactNode, useContext } from 'react';
import { type Place, pathOf } from '../route.ts';
import { type Language, type Say, speak } from '../words/words.ts';

/** What every part of the page may need: words, and a way to open a file of the thread. */
export interface PageContext {
  readonly say: Say;
  readonly openFile: (path: string) => void;
  readonly announce: (text: string) => void;
  readonly language: Language;
  readonly go: (place: Place) => void;
  /** The list at the side, where it is not always there. */
  readonly showList: (shown: boolean) => void;
  /** Does it lie over the page now? */
  readonly listShown: boolean;
}

export const Page = createContext<PageContext>({
  say: speak('en'),
  openFile: () => {},
  announce: () => {},
  language: 'en',
  go: () => {},
  showList: () => {},
  listShown: false,
});

export function usePage(): PageContext {
  return useContext(Page);
}

export function useSay(): Say {
  return useContext(Page).say;
}

/** A link inside the page: a click changes the place, everything else (a new tab, copying) is the browser's. */
export function PlaceLink({
  to,
  className,
  current,
  children,
}: {
  readonly to: Place;
  readonly className?: string;
  readonly current?: boolean;
  readonly children: ReactNode;
}) {
  const { go } = usePage();
  return (
    <a
      href={pathOf(to)}
      className={className}
      aria-current={current === true ? 'page' : undefined}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}
