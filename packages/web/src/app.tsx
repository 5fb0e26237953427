import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import type { Api, ModelEntry, SandboxEntry } from './api/api.ts';
import type { Storage } from './api/token.ts';
import { asTrouble } from './api/trouble.ts';
import { ChatView } from './chat/chat-view.tsx';
import { ChatController } from './chat/controller.ts';
import { FileViewer } from './files/viewer.tsx';
import { Icon } from './parts/icons.tsx';
import { Page } from './parts/page-context.tsx';
import { threadInPath } from './route.ts';
import { ThreadList } from './threads/thread-list.tsx';
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

const MODEL_KEY = 'reindeer.model';
const PLAN_KEY = 'reindeer.plan';
const LANGUAGE_KEY = 'reindeer.language';

/** The whole page: the list of chats, the open chat, and what lies over them. */
export function App({ parts }: { readonly parts: AppParts }) {
  const { api } = parts;
  const [language, setLanguage] = useState(parts.language);
  const say = useMemo(() => speak(language), [language]);
  const threads = useThreads(api);
  const { refresh } = threads;
  const [models, setModels] = useState<readonly ModelEntry[]>([]);
  const [sandbox, setSandbox] = useState<SandboxEntry | null>(null);
  const [model, setModel] = useState<string | null>(() => parts.local.getItem(MODEL_KEY));
  const [plan, setPlan] = useState(() => parts.local.getItem(PLAN_KEY) === 'on');
  const [needsToken, setNeedsToken] = useState(false);
  const [listOpen, setListOpen] = useState(false);
  const [file, setFile] = useState<string | null>(null);
  const [announcement, setAnnouncement] = useState('');
  const [title, setTitle] = useState<string | null>(null);
  const reached = useConnection(parts);

  // A name that is not offered any more must not be sent.
  const chosen = models.some((entry) => entry.name === model) ? model : (models[0]?.name ?? null);
  const chosenNow = useRef(chosen);
  chosenNow.current = chosen;

  const makeController = useCallback(
    (threadId: string | null) =>
      new ChatController(threadId ?? parts.newId(), threadId !== null, {
        api: parts.api,
        storage: parts.session,
        newId: parts.newId,
        model: () => chosenNow.current,
        plan: () => parts.local.getItem(PLAN_KEY) === 'on',
        schedule: (paint) => schedulePaint(paint),
        sleep,
        onThreadChanged: refresh,
      }),
    [parts, refresh],
  );
  const [controller, setController] = useState(() => makeController(threadInPath(location.pathname)));

  useEffect(() => {
    void controller.open();
    return () => controller.close();
  }, [controller]);

  const loadAbout = useCallback(() => {
    api.models().then(setModels, (error: unknown) => setNeedsToken(asTrouble(error).kind === 'token'));
    api.sandbox().then(setSandbox, () => {});
  }, [api]);
  useEffect(loadAbout, [loadAbout]);

  const show = useCallback(
    (threadId: string | null, push: boolean) => {
      if (push) history.pushState(null, '', threadId === null ? '/' : `/chats/${threadId}`);
      setController(makeController(threadId));
      setFile(null);
      setListOpen(false);
      setTitle(null);
    },
    [makeController],
  );
  useEffect(() => {
    const onBack = () => show(threadInPath(location.pathname), false);
    addEventListener('popstate', onBack);
    return () => removeEventListener('popstate', onBack);
  }, [show]);

  // A new chat gets its address when it exists, so that a reload finds it again.
  const isListed = threads.entries.some((entry) => entry.threadId === controller.threadId);
  useEffect(() => {
    if (controller.exists && isListed && threadInPath(location.pathname) !== controller.threadId) {
      history.replaceState(null, '', `/chats/${controller.threadId}`);
    }
  }, [controller, isListed]);

  const shownTitle =
    title ?? threads.entries.find((entry) => entry.threadId === controller.threadId)?.title ?? say('threads.untitled');
  useEffect(() => {
    document.title = `${shownTitle} · ${say('app.name')}`;
    document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  }, [shownTitle, language, say]);

  const page = useMemo(() => ({ say, openFile: setFile, announce: setAnnouncement }), [say]);
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
              show(threadInPath(location.pathname), false);
            });
          }}
        />
      </Page>
    );
  }
  const isDemo = models.find((entry) => entry.name === chosen)?.demo === true;
  return (
    <Page value={page}>
      <a className="skip" href="#message">
        {say('app.skip')}
      </a>
      <div className={listOpen ? 'app list-open' : 'app'}>
        <nav aria-label={say('threads.label')}>
          <div className="brand">
            <img src="/icon.svg" alt="" width="26" height="26" />
            <strong>{say('app.name')}</strong>
            <button
              type="button"
              className="quiet square only-narrow"
              aria-label={say('threads.hide')}
              onClick={() => setListOpen(false)}
            >
              <Icon name="close" />
            </button>
          </div>
          <button type="button" className="new" onClick={() => show(null, true)}>
            <Icon name="plus" /> {say('threads.new')}
          </button>
          <ThreadList
            api={api}
            threads={threads}
            current={controller.threadId}
            onOpen={(threadId) => (threadId === controller.threadId ? setListOpen(false) : show(threadId, true))}
            onRenamed={(threadId, name) => {
              if (threadId === controller.threadId) controller.rename(name);
              refresh();
            }}
            onDeleted={(threadId) => {
              refresh();
              if (threadId === controller.threadId) show(null, true);
            }}
          />
          <button
            type="button"
            className="quiet language"
            aria-label={say('app.language.label')}
            onClick={() => {
              const next = language === 'en' ? 'zh' : 'en';
              parts.local.setItem(LANGUAGE_KEY, next);
              setLanguage(next);
            }}
          >
            {say('app.language')}
          </button>
        </nav>
        <button type="button" className="veil" tabIndex={-1} aria-hidden="true" onClick={() => setListOpen(false)} />
        <main>
          <header className="head">
            <button
              type="button"
              className="quiet square only-narrow"
              aria-label={say('threads.show')}
              aria-expanded={listOpen}
              onClick={() => setListOpen(true)}
            >
              <Icon name="menu" />
            </button>
            <h1>{shownTitle}</h1>
          </header>
          <div className="banners" role="status">
            {reached ? null : <p className="banner warn">{say('banner.offline')}</p>}
            {isDemo ? <p className="banner">{say('banner.demo')}</p> : null}
            {sandbox !== null && !sandbox.canExecute ? (
              <p className="banner warn">
                {say('banner.noCommands')} {sandbox.reason}{' '}
                {sandbox.remedy === null ? null : <code>{sandbox.remedy}</code>}
              </p>
            ) : null}
          </div>
          <ChatView
            key={controller.threadId}
            api={api}
            controller={controller}
            storage={parts.session}
            models={models}
            model={chosen}
            onModel={(name) => {
              parts.local.setItem(MODEL_KEY, name);
              setModel(name);
            }}
            plan={plan}
            onPlan={(wanted) => {
              parts.local.setItem(PLAN_KEY, wanted ? 'on' : 'off');
              setPlan(wanted);
            }}
            onTitle={setTitle}
          />
        </main>
      </div>
      {file === null ? null : (
        <FileViewer key={file} api={api} threadId={controller.threadId} path={file} onClose={() => setFile(null)} />
      )}
      <div className="only-heard" aria-live="polite">
        {announcement}
      </div>
    </Page>
  );
}

/** Before the next picture; in a hidden tab, where no pictures are drawn, soon. */
function schedulePaint(paint: () => void): void {
  if (document.visibilityState === 'hidden') setTimeout(paint, 250);
  else requestAnimationFrame(paint);
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const leave = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', leave);
      resolve();
    }, milliseconds);
    signal.addEventListener('abort', leave, { once: true });
  });
}

function useConnection(parts: AppParts): boolean {
  const [reached, setReached] = useState(true);
  useEffect(() => parts.onConnection(setReached), [parts]);
  useEffect(() => {
    if (reached) return;
    // Asks again until somebody answers; any answer changes `reached` through the listener.
    const timer = setInterval(() => {
      parts.api.models().catch(() => {});
    }, 3_000);
    return () => clearInterval(timer);
  }, [reached, parts]);
  return reached;
}
