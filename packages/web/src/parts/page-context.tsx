import { createContext, useContext } from 'react';
import { type Say, speak } from '../words/words.ts';

/** What every part of the page may need: words, and a way to open a file of the thread. */
export interface PageContext {
  readonly say: Say;
  readonly openFile: (path: string) => void;
  readonly announce: (text: string) => void;
}

export const Page = createContext<PageContext>({ say: speak('en'), openFile: () => {}, announce: () => {} });

export function usePage(): PageContext {
  return useContext(Page);
}

export function useSay(): Say {
  return useContext(Page).say;
}
