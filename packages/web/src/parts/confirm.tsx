import type { ReactNode } from 'react';
import { Dialog } from './dialog.tsx';
import { useSay } from './page-context.tsx';
import { useWork, WorkTrouble } from './use-work.tsx';

interface ConfirmProps {
  readonly title: string;
  readonly children: ReactNode;
  /** The word on the button that does it. */
  readonly action: string;
  readonly onConfirm: () => Promise<void>;
  readonly onClose: () => void;
}

/** Asks before something that cannot be undone. It closes when the work is done. */
export function Confirm({ title, children, action, onConfirm, onClose }: ConfirmProps) {
  const say = useSay();
  const work = useWork();
  return (
    <Dialog title={title} onClose={onClose}>
      <div className="dialog-text">{children}</div>
      <WorkTrouble trouble={work.trouble} />
      <div className="dialog-bar">
        <button type="button" onClick={onClose}>
          {say('dialog.cancel')}
        </button>
        <button
          type="button"
          className="danger"
          disabled={work.busy}
          onClick={() => work.run(() => onConfirm().then(onClose))}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}
