import { useCallback, useEffect, useState } from 'react';
import type { Features, ModelEntry } from '../api/api.ts';
import type { AppParts } from '../app.tsx';
import { FileViewer } from '../files/viewer.tsx';
import { Page, usePage } from '../parts/page-context.tsx';
import { PageHead } from '../parts/page-frame.tsx';
import { ChatTools } from './chat-tools.tsx';
import { ChatView } from './chat-view.tsx';
import { ChatController } from './controller.ts';
import { useOptions } from './options.ts';

interface ChatScreenProps {
  readonly parts: AppParts;
  /** null = a new chat. */
  readonly threadId: string | null;
  /** The custom agent of a new chat; with `bootstrap` the one that is made by it. */
  readonly agent: string | null;
  readonly bootstrap: boolean;
  readonly models: readonly ModelEntry[];
  readonly features: Features | null;
  /** As the list of chats knows it. */
  readonly listedTitle: string | null;
  readonly reached: boolean;
  readonly onThreadChanged: () => void;
  /** The chat is there, under this id. */
  readonly onThread: (threadId: string) => void;
  readonly onController: (controller: ChatController | null) => void;
}

/** One chat with its head, what is to be said about the server, and the files that are opened from it. */
export function ChatScreen(props: ChatScreenProps) {
  const { parts, models, features, onThreadChanged, onThread, onController } = props;
  const page = usePage();
  const { say, listShown } = page;
  const options = useOptions(parts.local, models);
  const [file, setFile] = useState<string | null>(null);
  const [title, setTitle] = useState<string | null>(null);
  const [agent, setAgent] = useState(props.agent);
  const [controller] = useState(
    () =>
      new ChatController(props.threadId ?? parts.newId(), props.threadId !== null, {
        api: parts.api,
        storage: parts.session,
        newId: parts.newId,
        model: () => options.now().model,
        options: () => options.now().options,
        agent: props.agent,
        bootstrap: props.bootstrap,
        schedule: schedulePaint,
        sleep,
        onThreadChanged,
      }),
  );
  useEffect(() => {
    void controller.open();
    onController(controller);
    return () => {
      controller.close();
      onController(null);
    };
  }, [controller, onController]);

  const openFile = useCallback((path: string) => setFile(path), []);
  const isDemo = options.model?.demo === true;
  const sandbox = features?.sandbox ?? null;
  return (
    <Page value={{ ...page, openFile }}>
      <main inert={listShown}>
        <PageHead title={title ?? props.listedTitle ?? say('threads.untitled')}>
          {agent === null ? null : (
            <span className="badge">{say(props.bootstrap ? 'agents.making' : 'agents.with', { name: agent })}</span>
          )}
          <ChatTools api={parts.api} controller={controller} />
        </PageHead>
        <div className="banners" role="status">
          {props.reached ? null : <p className="banner warn">{say('banner.offline')}</p>}
          {isDemo ? <p className="banner">{say('banner.demo')}</p> : null}
          {sandbox !== null && !sandbox.canExecute ? (
            <p className="banner warn">
              {say('banner.noCommands')} {sandbox.reason}{' '}
              {sandbox.remedy === null ? null : <code>{sandbox.remedy}</code>}
            </p>
          ) : null}
        </div>
        <ChatView
          api={parts.api}
          controller={controller}
          storage={parts.session}
          local={parts.local}
          options={options}
          onTitle={setTitle}
          onAgent={setAgent}
          onThread={onThread}
        />
      </main>
      {file === null ? null : (
        <FileViewer
          key={file}
          api={parts.api}
          threadId={controller.threadId}
          path={file}
          onClose={() => setFile(null)}
        />
      )}
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
