import { useState } from 'react';
import type { Api, ThreadEntry } from '../api/api.ts';
import { Confirm } from '../parts/confirm.tsx';
import { InputField } from '../parts/fields.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { troubleText } from '../parts/trouble-text.ts';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import type { Threads } from './use-threads.ts';

interface ThreadListProps {
  readonly api: Api;
  readonly threads: Threads;
  /** null = none is open. */
  readonly current: string | null;
  readonly onOpen: (threadId: string) => void;
  readonly onRenamed: (threadId: string, title: string) => void;
  readonly onDeleted: (threadId: string) => void;
}

type Asking = { readonly what: 'rename' | 'delete'; readonly entry: ThreadEntry };

/** The chats: open, pin, rename, delete. */
export function ThreadList({ api, threads, current, onOpen, onRenamed, onDeleted }: ThreadListProps) {
  const { say } = usePage();
  const [asking, setAsking] = useState<Asking | null>(null);
  const pinning = useWork();
  const titleOf = (entry: ThreadEntry) => entry.title ?? say('threads.untitled');
  return (
    <>
      <ul className="threads">
        {threads.entries.map((entry) => (
          <li key={entry.threadId} className={entry.threadId === current ? 'thread current' : 'thread'}>
            <a
              href={`/chats/${entry.threadId}`}
              aria-current={entry.threadId === current ? 'page' : undefined}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey || event.shiftKey) return;
                event.preventDefault();
                onOpen(entry.threadId);
              }}
            >
              {entry.pinned ? (
                <>
                  <Icon name="pin" />
                  <span className="only-heard">{say('threads.pinned')} </span>
                </>
              ) : null}
              <span className="thread-title">{titleOf(entry)}</span>
              {entry.messenger === null ? null : (
                <>
                  <span className="only-heard"> {say('threads.from', { name: entry.messenger })}</span>
                  <small className="badge" aria-hidden="true">
                    {entry.messenger}
                  </small>
                </>
              )}
              {entry.status === 'busy' ? <span className="busy">{say('threads.running')}</span> : null}
            </a>
            <fieldset className="thread-actions" aria-label={say('threads.menu', { title: titleOf(entry) })}>
              <button
                type="button"
                className="quiet square"
                aria-label={`${say('threads.pin')}: ${titleOf(entry)}`}
                title={say('threads.pin')}
                aria-pressed={entry.pinned}
                disabled={pinning.busy}
                onClick={() => pinning.run(() => api.pinThread(entry.threadId, !entry.pinned).then(threads.refresh))}
              >
                <Icon name="pin" />
              </button>
              <button
                type="button"
                className="quiet square"
                aria-label={`${say('threads.rename')}: ${titleOf(entry)}`}
                title={say('threads.rename')}
                onClick={() => setAsking({ what: 'rename', entry })}
              >
                <Icon name="pencil" />
              </button>
              <button
                type="button"
                className="quiet square"
                aria-label={`${say('threads.delete')}: ${titleOf(entry)}`}
                title={say('threads.delete')}
                onClick={() => setAsking({ what: 'delete', entry })}
              >
                <Icon name="trash" />
              </button>
            </fieldset>
          </li>
        ))}
      </ul>
      <WorkTrouble trouble={pinning.trouble} />
      {threads.loading ? <p className="note">{say('threads.loading')}</p> : null}
      {!threads.loading && threads.trouble === null && threads.entries.length === 0 ? (
        <p className="note">{say('threads.none')}</p>
      ) : null}
      {threads.trouble === null ? null : (
        <div role="alert" className="trouble">
          <p>
            {say('threads.failed')} {troubleText(threads.trouble, say)}
          </p>
          <button type="button" onClick={threads.refresh}>
            {say('run.retry')}
          </button>
        </div>
      )}
      {threads.more ? (
        <button type="button" className="quiet" onClick={threads.loadMore}>
          {say('threads.more')}
        </button>
      ) : null}
      {asking?.what === 'rename' ? (
        <RenameDialog
          title={asking.entry.title ?? ''}
          onClose={() => setAsking(null)}
          onSave={async (title) => {
            await api.renameThread(asking.entry.threadId, title);
            onRenamed(asking.entry.threadId, title);
            setAsking(null);
          }}
        />
      ) : null}
      {asking?.what === 'delete' ? (
        <Confirm
          title={say('delete.title')}
          action={say('threads.delete')}
          onClose={() => setAsking(null)}
          onConfirm={async () => {
            await api.deleteThread(asking.entry.threadId);
            onDeleted(asking.entry.threadId);
          }}
        >
          <p>{say('delete.text', { title: titleOf(asking.entry) })}</p>
        </Confirm>
      ) : null}
    </>
  );
}

interface RenameDialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly onSave: (title: string) => Promise<void>;
}

function RenameDialog({ title, onClose, onSave }: RenameDialogProps) {
  const { say } = usePage();
  const [text, setText] = useState(title);
  return (
    <FormDialog
      title={say('rename.title')}
      ready={text.trim() !== ''}
      onSubmit={() => onSave(text.trim())}
      onClose={onClose}
    >
      <InputField label={say('rename.label')} value={text} maxLength={256} onChange={setText} />
    </FormDialog>
  );
}
