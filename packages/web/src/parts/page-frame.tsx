import { type ReactNode, useEffect } from 'react';
import type { Trouble } from '../chat/state.ts';
import { Icon } from './icons.tsx';
import { usePage } from './page-context.tsx';
import { WorkTrouble } from './use-work.tsx';

interface FrameProps {
  readonly title: string;
  /** What the page is for, in a sentence. */
  readonly about: string;
  /** Buttons beside the title. */
  readonly actions?: ReactNode;
  readonly children: ReactNode;
}

/** The head of a chat or page: the way to the list where that is hidden, the title, which the tab has too, and what stands beside it. */
export function PageHead({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  const { say, showList } = usePage();
  useEffect(() => {
    document.title = `${title} · ${say('app.name')}`;
  }, [title, say]);
  return (
    <header className="head">
      <button
        type="button"
        className="quiet square only-narrow"
        aria-label={say('threads.show')}
        onClick={() => showList(true)}
      >
        <Icon name="menu" />
      </button>
      <h1>{title}</h1>
      {children}
    </header>
  );
}

/** A page beside the chats: its title, what it is for, and its content. */
export function PageFrame({ title, about, actions, children }: FrameProps) {
  const { listShown } = usePage();
  return (
    <main inert={listShown}>
      <PageHead title={title}>
        <div className="head-actions">{actions}</div>
      </PageHead>
      <div className="page-scroll">
        <div className="page">
          <p className="about">{about}</p>
          {children}
        </div>
      </div>
    </main>
  );
}

interface ContentProps {
  readonly loading: boolean;
  readonly trouble: Trouble | null;
  readonly onRetry: () => void;
  readonly children: ReactNode;
}

/** The content when it is there; until then that it loads, or why it did not. */
export function Content({ loading, trouble, onRetry, children }: ContentProps) {
  const { say } = usePage();
  return (
    <>
      {trouble === null ? null : (
        <div className="status trouble">
          <WorkTrouble trouble={trouble} />
          <button type="button" onClick={onRetry}>
            {say('run.retry')}
          </button>
        </div>
      )}
      {loading ? trouble === null ? <p className="note">{say('page.loading')}</p> : null : children}
    </>
  );
}

/** A switch with its name; the work behind it decides whether it moves. */
export function Switch({
  label,
  on,
  disabled,
  onChange,
}: {
  readonly label: string;
  readonly on: boolean;
  readonly disabled?: boolean;
  readonly onChange: (on: boolean) => void;
}) {
  return (
    <button
      type="button"
      role="switch"
      className="switch"
      aria-checked={on}
      aria-label={label}
      disabled={disabled === true}
      onClick={() => onChange(!on)}
    >
      <i aria-hidden="true" />
    </button>
  );
}
