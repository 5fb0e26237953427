import { useCallback, useEffect, useRef, useState } from 'react';
import { CopyButton } from '../parts/copy-button.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { Icon, type IconName } from '../parts/icons.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useSeen } from '../parts/use-seen.ts';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { ChangesBadge } from './changes.tsx';
import { useChat } from './chat-context.tsx';
import type { MessageFacts } from './turn-facts.ts';
import { isDictionary, textOr } from './wire.ts';

interface AgentBarProps {
  /** What is copied. */
  readonly text: string;
  /** The newest message of the turn: the answer. */
  readonly messageId: string;
  readonly newest: boolean;
  /** Nothing can be changed while a run is at work. */
  readonly busy: boolean;
}

/** What can be done with an answer: copy, rate, answer again, branch; and what its run changed. */
export function AgentBar({ text, messageId, newest, busy }: AgentBarProps) {
  const { say, go, announce } = usePage();
  const { rest, controller, facts } = useChat();
  const [known, setKnown] = useState<MessageFacts | null>(null);
  const bar = useRef<HTMLDivElement>(null);
  const seen = useSeen(bar);
  const work = useWork();
  const path = `/threads/${encodeURIComponent(controller.threadId)}`;
  useEffect(() => {
    if (!seen || (busy && newest)) return;
    let left = false;
    facts.of(messageId).then(
      (found) => {
        if (!left) setKnown(found);
      },
      () => {},
    );
    return () => {
      left = true;
    };
  }, [facts, messageId, busy, newest, seen]);
  const rate = (rating: 1 | -1) =>
    work.run(async () => {
      if (known === null) return;
      const feedback = `${path}/runs/${encodeURIComponent(known.runId)}/feedback`;
      if (known.rating === rating) await rest.send('DELETE', feedback);
      else await rest.send('PUT', feedback, { rating, message_id: messageId });
      facts.forget();
      setKnown({ ...known, rating: known.rating === rating ? null : rating });
    });
  const branch = () =>
    work.run(async () => {
      const title = say('turn.branchTitle', {
        title: controller.snapshot().title ?? say('threads.untitled'),
      }).slice(0, 256);
      const answer = await rest.send('POST', `${path}/branches`, { message_id: messageId, title });
      const threadId = textOr(isDictionary(answer) ? answer.thread_id : null, '');
      announce(say('turn.branched'));
      if (threadId !== '') go({ at: 'chat', threadId });
    });
  return (
    <>
      <div className="turn-bar" ref={bar}>
        <CopyButton text={() => text} />
        {known === null ? null : (
          <>
            <BarButton icon="good" label={say('turn.good')} pressed={known.rating === 1} onClick={() => rate(1)} />
            <BarButton icon="bad" label={say('turn.bad')} pressed={known.rating === -1} onClick={() => rate(-1)} />
          </>
        )}
        {newest ? (
          <BarButton
            icon="again"
            label={say('turn.again')}
            disabled={busy || work.busy}
            onClick={() => work.run(async () => void (await controller.regenerate(messageId)))}
          />
        ) : null}
        <BarButton icon="branch" label={say('turn.branch')} disabled={busy || work.busy} onClick={branch} />
        {known === null ? null : <ChangesBadge runId={known.runId} />}
      </div>
      <WorkTrouble trouble={work.trouble} />
    </>
  );
}

interface BarButtonProps {
  readonly icon: IconName;
  readonly label: string;
  readonly pressed?: boolean;
  readonly disabled?: boolean;
  readonly onClick: () => void;
}

function BarButton({ icon, label, pressed, disabled, onClick }: BarButtonProps) {
  return (
    <button
      type="button"
      className="quiet square small"
      aria-label={label}
      title={label}
      aria-pressed={pressed}
      disabled={disabled === true}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}

/** Changes the newest message and has it answered anew. */
export function EditButton({ messageId, text }: { readonly messageId: string; readonly text: string }) {
  const { say } = usePage();
  const [open, setOpen] = useState(false);
  const close = useCallback(() => setOpen(false), []);
  return (
    <>
      <button
        type="button"
        className="quiet square small"
        aria-label={say('turn.edit')}
        title={say('turn.edit')}
        onClick={() => setOpen(true)}
      >
        <Icon name="pencil" />
      </button>
      {open ? <EditDialog messageId={messageId} text={text} onClose={close} /> : null}
    </>
  );
}

function EditDialog({
  messageId,
  text,
  onClose,
}: {
  readonly messageId: string;
  readonly text: string;
  readonly onClose: () => void;
}) {
  const { say } = usePage();
  const { controller } = useChat();
  const [words, setWords] = useState(text);
  return (
    <FormDialog
      title={say('turn.edit')}
      action={say('composer.send')}
      ready={words.trim() !== ''}
      onSubmit={() => controller.edit(messageId, words.trim()).then(onClose)}
      onClose={onClose}
    >
      <textarea
        className="wide-field"
        aria-label={say('composer.label')}
        rows={5}
        maxLength={200_000}
        value={words}
        onChange={(event) => setWords(event.target.value)}
      />
      <p className="note">{say('turn.edit.note')}</p>
    </FormDialog>
  );
}
