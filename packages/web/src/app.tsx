import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Api, Features, ModelEntry } from './api/api.ts';
import type { Storage } from './api/token.ts';
import { asTrouble } from './api/trouble.ts';
import { ChatScreen } from './chat/chat-screen.tsx';
import type { ChatController } from './chat/controller.ts';
import { Page } from './parts/page-context.tsx';
import { type PageName, type Place, pathOf, placeOf } from './route.ts';
import { FindDialog, useFindKey } from './shell/find.tsx';
import { Sidebar } from './shell/sidebar.tsx';
import { applyTheme, useConnection, useListOverPage } from './shell/surroundings.ts';
import { useThreads } from './threads/use-threads.ts';
import { TokenForm } from './token-form.tsx';
import { type Language, speak } from './words/words.ts';

export interface AppParts {
  readonly api: Api;
  /** For the tab, and for this browser. */
  readonly session: Storage;
  readonly local: Storage;
  readonly language: Language;
  readonly newId: () => string;
  /** Calls back with whether the server can be reached, whenever that changes. */
  readonly onConnection: (listener: (reached: boolean) => void) => () => void;
  readonly acceptToken: (token: string) => void;
}

const LANGUAGE_KEY = 'reindeer.language';
const BatchesPage = lazy(() => import('./batches/batches-page.tsx'));
const SchedulesPage = lazy(() => import('./schedules/schedules-page.tsx'));
const MemoryPage = lazy(() => import('./memory/memory-page.tsx'));
const AgentsPage = lazy(() => import('./agents/agents-page.tsx'));
const SkillsPage = lazy(() => import('./skills/skills-page.tsx'));
const ToolsPage = lazy(() => import('./tools/tools-page.tsx'));
const SettingsPage = lazy(() => import('./settings/settings-page.tsx'));

/** The whole page: the list of chats and pages, what is open of them, and what lies over them. */
export function App({ parts }: { readonly parts: AppParts }) {
  const { api } = parts;
  const [language, setLanguage] = useState(parts.language);
  const say = useMemo(() => speak(language), [language]);
  const threads = useThreads(api);
  const { refresh } = threads;
  const [models, setModels] = useState<readonly ModelEntry[]>([]);
  const [features, setFeatures] = useState<Features | null>(null);
  const [needsToken, setNeedsToken] = useState(false);
  const [listOpen, setListOpen] = useListOverPage();
  const [announcement, setAnnouncement] = useState('');
  // A new number is a new screen, also for the same place: "new chat" twice.
  const [screen, setScreen] = useState<{ readonly id: number; readonly place: Place }>(() => ({
    id: 0,
    place: placeOf(location.pathname),
  }));
  const [openThread, setOpenThread] = useState<string | null>(() => threadOf(screen.place));
  const controller = useRef<ChatController | null>(null);
  const reached = useConnection(parts);
  const [finding, setFinding] = useState(false);
  const closeFind = useCallback(() => setFinding(false), []);
  useFindKey(setFinding);

  const loadAbout = useCallback(() => {
    api.models().then(setModels, (error: unknown) => setNeedsToken(asTrouble(error).kind === 'token'));
    api.features().then(setFeatures, () => {});
  }, [api]);
  useEffect(loadAbout, [loadAbout]);
  useEffect(() => applyTheme(parts.local), [parts.local]);

  const show = useCallback(
    (place: Place, push: boolean) => {
      if (push) history.pushState(null, '', pathOf(place));
      setScreen((now) => ({ id: now.id + 1, place }));
      setOpenThread(threadOf(place));
      setListOpen(false);
    },
    [setListOpen],
  );
  const go = useCallback((place: Place) => show(place, true), [show]);
  useEffect(() => {
    const onBack = () => show(placeOf(location.pathname), false);
    addEventListener('popstate', onBack);
    return () => removeEventListener('popstate', onBack);
  }, [show]);
  useEffect(() => {
    document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  }, [language]);

  const onThread = useCallback((threadId: string) => {
    setOpenThread(threadId);
    // A new chat gets its address when it exists, so that a reload finds it again.
    const address = pathOf({ at: 'chat', threadId });
    if (location.pathname !== address) history.replaceState(null, '', address);
  }, []);
  const onController = useCallback((given: ChatController | null) => {
    controller.current = given;
  }, []);

  const chooseLanguage = useCallback(
    (next: Language) => {
      parts.local.setItem(LANGUAGE_KEY, next);
      setLanguage(next);
    },
    [parts.local],
  );
  const page = useMemo(
    () => ({
      say,
      language,
      openFile: () => {},
      announce: setAnnouncement,
      go,
      showList: setListOpen,
      listShown: listOpen,
    }),
    [say, language, go, listOpen, setListOpen],
  );
  if (needsToken) {
    return (
      <Page value={page}>
        <TokenForm
          onToken={(token) => {
            parts.acceptToken(token);
            return api.models().then((found) => {
              setModels(found);
              setNeedsToken(false);
              loadAbout();
              refresh();
              show(placeOf(location.pathname), false);
            });
          }}
        />
      </Page>
    );
  }
  const { place } = screen;
  const isChat = place.at === 'chat' || place.at === 'new';
  return (
    <Page value={page}>
      {isChat ? (
        <a className="skip" href="#message">
          {say('app.skip')}
        </a>
      ) : null}
      <div className={listOpen ? 'app list-open' : 'app'}>
        <Sidebar
          api={api}
          threads={threads}
          place={place}
          openThread={openThread}
          onClose={() => setListOpen(false)}
          onRenamed={(threadId, name) => {
            if (threadId === openThread) controller.current?.rename(name);
            refresh();
          }}
          onDeleted={refresh}
          onFind={() => setFinding(true)}
          onLanguage={() => chooseLanguage(language === 'en' ? 'zh' : 'en')}
        />
        <button type="button" className="veil" tabIndex={-1} aria-hidden="true" onClick={() => setListOpen(false)} />
        {isChat ? (
          <ChatScreen
            key={screen.id}
            parts={parts}
            threadId={place.at === 'chat' ? place.threadId : null}
            agent={place.at === 'new' ? place.agent : null}
            bootstrap={place.at === 'new' && place.bootstrap}
            models={models}
            features={features}
            listedTitle={threads.entries.find((entry) => entry.threadId === openThread)?.title ?? null}
            reached={reached}
            onThreadChanged={refresh}
            onThread={onThread}
            onController={onController}
          />
        ) : (
          <Suspense fallback={<main />}>
            <OtherPage
              key={screen.id}
              at={place.at}
              parts={parts}
              models={models}
              features={features}
              onThreadsChanged={refresh}
            />
          </Suspense>
        )}
      </div>
      {finding ? <FindDialog api={api} onClose={closeFind} /> : null}
      <div className="only-heard" aria-live="polite">
        {announcement}
      </div>
    </Page>
  );
}

const threadOf = (place: Place): string | null => (place.at === 'chat' ? place.threadId : null);

interface OtherPageProps {
  readonly at: PageName;
  readonly parts: AppParts;
  readonly models: readonly ModelEntry[];
  readonly features: Features | null;
  readonly onThreadsChanged: () => void;
}

function OtherPage({ at, parts, models, features, onThreadsChanged }: OtherPageProps) {
  const { rest } = parts.api;
  switch (at) {
    case 'batches':
      return <BatchesPage rest={rest} />;
    case 'schedules':
      return <SchedulesPage api={parts.api} models={models} onRuns={onThreadsChanged} />;
    case 'memory':
      return <MemoryPage rest={rest} />;
    case 'agents':
      return <AgentsPage rest={rest} models={models} features={features} />;
    case 'skills':
      return <SkillsPage api={parts.api} newId={parts.newId} />;
    case 'tools':
      return <ToolsPage rest={rest} />;
    case 'settings':
      return <SettingsPage rest={rest} local={parts.local} models={models} features={features} />;
  }
}
