import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { httpApi } from './api/http-api.ts';
import { keepToken, takeToken, tolerant } from './api/token.ts';
import { App, type AppParts } from './app.tsx';
import { newUuid } from './route.ts';
import './styles/index.css';
import { chooseLanguage } from './words/words.ts';

const session = tolerant(() => sessionStorage);
const local = tolerant(() => localStorage);
let token = takeToken(
  { hash: location.hash, clear: () => history.replaceState(null, '', location.pathname + location.search) },
  session,
);
const listeners = new Set<(reached: boolean) => void>();
let reached = true;

const parts: AppParts = {
  api: httpApi({
    url: `${location.origin}/api`,
    token: () => token,
    newId: () => newUuid(crypto),
    fetch: (input, init) => fetch(input, init),
    onConnection: (now) => {
      if (now === reached) return;
      reached = now;
      for (const listener of listeners) listener(now);
    },
  }),
  session,
  local,
  language: chooseLanguage(local.getItem('reindeer.language'), navigator.languages),
  newId: () => newUuid(crypto),
  onConnection: (listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
  acceptToken: (given) => {
    token = given;
    keepToken(given, session);
  },
};

const root = document.getElementById('root');
if (root !== null) {
  createRoot(root).render(
    <StrictMode>
      <App parts={parts} />
    </StrictMode>,
  );
}
