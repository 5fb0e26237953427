import { type ReactNode, useId, useLayoutEffect, useRef } from 'react';
import { Icon } from './icons.tsx';
import { useSay } from './page-context.tsx';

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
  readonly wide?: boolean;
}

/** A modal dialog: the browser keeps the focus inside, closes it on Escape, and gives the focus back. */
export function Dialog({ title, onClose, children, wide }: DialogProps) {
  const say = useSay();
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  // Closed while it is still in the page: one that is merely taken out gives no focus back.
  useLayoutEffect(() => {
    const element = dialog.current;
    if (element !== null && !element.open) {
      element.showModal();
      // Where there is something to fill in, that comes first, and not the button that closes.
      element.querySelector<HTMLElement>('input:not([type="file"], [type="checkbox"]), textarea')?.focus();
    }
    return () => element?.close();
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: a click beside the dialog closes it; Escape does the same for the keyboard
    <dialog
      ref={dialog}
      className={wide === true ? 'dialog wide' : 'dialog'}
      aria-labelledby={titleId}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <div className="dialog-body">
        <header>
          <h2 id={titleId}>{title}</h2>
          <button type="button" className="quiet square" aria-label={say('dialog.close')} onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
