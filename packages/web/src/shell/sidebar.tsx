import type { Api } from '../api/api.ts';
import { Icon, type IconName } from '../parts/icons.tsx';
import { PlaceLink, usePage } from '../parts/page-context.tsx';
import { NEW_CHAT, PAGES, type PageName, type Place } from '../route.ts';
import { ThreadList } from '../threads/thread-list.tsx';
import type { Threads } from '../threads/use-threads.ts';

const ICONS: Readonly<Record<PageName, IconName>> = {
  schedules: 'clock',
  batches: 'stack',
  memory: 'memory',
  agents: 'agent',
  skills: 'skill',
  tools: 'plug',
  settings: 'gear',
};

interface SidebarProps {
  readonly api: Api;
  readonly threads: Threads;
  readonly place: Place;
  readonly openThread: string | null;
  readonly onClose: () => void;
  readonly onRenamed: (threadId: string, title: string) => void;
  readonly onDeleted: () => void;
  readonly onFind: () => void;
  readonly onLanguage: () => void;
}

/** What can be opened: a new chat, the chats, and the pages. */
export function Sidebar(props: SidebarProps) {
  const { api, threads, place, openThread, onClose, onRenamed, onDeleted, onFind, onLanguage } = props;
  const { say, go } = usePage();
  return (
    <nav aria-label={say('threads.label')}>
      <div className="brand">
        <img src="/icon.svg" alt="" width="26" height="26" />
        <strong>{say('app.name')}</strong>
        <button type="button" className="quiet square only-narrow" aria-label={say('threads.hide')} onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      <div className="begin">
        <button type="button" className="new" onClick={() => go(NEW_CHAT)}>
          <Icon name="plus" /> {say('threads.new')}
        </button>
        <button
          type="button"
          className="square"
          aria-label={say('find.open')}
          title={`${say('find.open')} (Ctrl+K)`}
          aria-keyshortcuts="Control+K Meta+K"
          onClick={onFind}
        >
          <Icon name="search" />
        </button>
      </div>
      <div className="thread-scroll">
        <ThreadList
          api={api}
          threads={threads}
          current={openThread}
          onOpen={(threadId) => (threadId === openThread ? onClose() : go({ at: 'chat', threadId }))}
          onRenamed={onRenamed}
          onDeleted={(threadId) => {
            onDeleted();
            if (threadId === openThread) go(NEW_CHAT);
          }}
        />
      </div>
      <ul className="pages" aria-label={say('pages.label')}>
        {PAGES.map((name) => (
          <li key={name}>
            <PlaceLink to={{ at: name }} current={place.at === name}>
              <Icon name={ICONS[name]} /> {say(`page.${name}`)}
            </PlaceLink>
          </li>
        ))}
      </ul>
      <button type="button" className="quiet language" aria-label={say('app.language.label')} onClick={onLanguage}>
        {say('app.language')}
      </button>
    </nav>
  );
}
