import type { FormEvent, ReactNode } from 'react';
import type { Trouble } from '../chat/state.ts';
import { Dialog } from './dialog.tsx';
import { useSay } from './page-context.tsx';
import { useWork, WorkTrouble } from './use-work.tsx';

interface FormDialogProps {
  readonly title: string;
  readonly wide?: boolean;
  /** The word on the button that sends it; left out = save. */
  readonly action?: string;
  /** Can it be sent as it stands? */
  readonly ready: boolean;
  /** What went wrong elsewhere, shown when sending did not fail. */
  readonly trouble?: Trouble | null;
  readonly onSubmit: () => Promise<void>;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

/** A form in a dialog. It says why sending failed and stays open then; whoever opened it closes it when the work is done. */
export function FormDialog(props: FormDialogProps) {
  const { title, wide = false, action, ready, trouble = null, onSubmit, onClose, children } = props;
  const say = useSay();
  const work = useWork();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (ready) work.run(onSubmit);
  };
  return (
    <Dialog title={title} onClose={onClose} wide={wide}>
      <form className="fields" onSubmit={submit}>
        {children}
        <WorkTrouble trouble={work.trouble ?? trouble} />
        <div className="dialog-bar">
          <button type="button" onClick={onClose}>
            {say('dialog.cancel')}
          </button>
          <button type="submit" className="primary" disabled={work.busy || !ready}>
            {action ?? say('dialog.save')}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
