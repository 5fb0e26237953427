import { lazy, memo, Suspense, useCallback, useDeferredValue, useState } from 'react';
import { readHead } from '../batches/batch.ts';
import { BatchCard } from '../batches/batch-card.tsx';
import { usePage } from '../parts/page-context.tsx';
import { SafePart } from '../parts/safe-part.tsx';
import { useChat } from './chat-context.tsx';
import type { Question } from './question.ts';
import { QuestionCard } from './question-card.tsx';
import { TaskCard } from './task-card.tsx';
import { FileCards, ToolCard } from './tool-card.tsx';
import { AgentBar, EditButton } from './turn-bar.tsx';
import type { CallView, Step, Turn } from './turns.ts';
import { sameTurn } from './turns.ts';

const Markdown = lazy(() => import('../markdown/markdown.tsx'));
const LONG = 1_500;

interface TurnViewProps {
  readonly turn: Turn;
  readonly busy: boolean;
  /** Nothing of its kind comes after it: only then can it be done anew. */
  readonly newest: boolean;
  /** More of it is to come: nothing can be done with it yet. */
  readonly atWork?: boolean;
  readonly onAnswer: (question: Question, reply: { kind: 'option' | 'text'; value: string; optionId?: string }) => void;
}

/** One turn of the conversation. Unchanged ones are not drawn again while another one streams. */
export const TurnView = memo(
  function TurnView({ turn, busy, newest, atWork, onAnswer }: TurnViewProps) {
    const { say } = usePage();
    if (turn.kind === 'human') {
      return (
        <article className="turn human" aria-label={say('chat.you')}>
          <LongText text={turn.message.text} />
          {turn.message.files.length === 0 ? null : <FileCards paths={turn.message.files.map((file) => file.path)} />}
          {newest && !busy ? <EditButton messageId={turn.message.id} text={turn.message.text} /> : null}
        </article>
      );
    }
    const answer = turn.steps.map((step) => step.message.text).filter((text) => text !== '');
    const last = turn.steps.at(-1);
    const streaming = turn.steps.some((step) => step.message.streaming);
    return (
      <article className="turn agent" aria-label={say('chat.agent')} aria-busy={streaming}>
        {turn.steps.map((step) => (
          <StepView key={step.id} step={step} busy={busy} onAnswer={onAnswer} />
        ))}
        {answer.length > 0 && last !== undefined && !streaming && atWork !== true ? (
          <AgentBar text={answer.join('\n\n')} messageId={last.message.id} newest={newest} busy={busy} />
        ) : null}
      </article>
    );
  },
  (before, after) =>
    before.busy === after.busy &&
    before.newest === after.newest &&
    before.atWork === after.atWork &&
    before.onAnswer === after.onAnswer &&
    sameTurn(before.turn, after.turn),
);

function StepView({
  step,
  busy,
  onAnswer,
}: {
  readonly step: Step;
  readonly busy: boolean;
  readonly onAnswer: TurnViewProps['onAnswer'];
}) {
  const { say, openFile } = usePage();
  const { message } = step;
  // Markdown of a long text takes a while: while it grows, only as many states of it are drawn as there is time for.
  const text = useDeferredValue(message.text);
  const thinking = message.streaming && message.text === '' && message.calls.length === 0;
  return (
    <>
      {message.reasoning === '' ? null : (
        <details className="reasoning">
          <summary>{thinking ? say('chat.thinking') : say('chat.reasoning')}</summary>
          <p className="plain">{message.reasoning}</p>
        </details>
      )}
      {message.failed ? <p className="trouble-title">{say('chat.modelFailed')}</p> : null}
      {message.text === '' ? null : (
        <div className={message.failed ? 'markdown trouble' : 'markdown'}>
          <SafePart fallback={<p className="plain">{message.text}</p>}>
            <Suspense fallback={<p className="plain">{message.text}</p>}>
              <Markdown text={text} onFile={openFile} />
            </Suspense>
          </SafePart>
        </div>
      )}
      {step.calls.map((view) => {
        const { question } = view;
        if (question === null) return <CallCard key={view.key} view={view} messageId={message.id} />;
        return (
          <QuestionCard
            key={view.key}
            view={question}
            busy={busy}
            onAnswer={(reply) => onAnswer(question.question, reply)}
          />
        );
      })}
    </>
  );
}

function CallCard({ view, messageId }: { readonly view: CallView; readonly messageId: string }) {
  const { rest, controller } = useChat();
  const onOver = useCallback(() => void controller.expectRun(), [controller]);
  if (view.call.name === 'task') return <TaskCard view={view} messageId={messageId} />;
  // The head of a batch tells where to ask; what a later call answers about it is shown as any other result.
  const batch = view.call.name === 'batch_task' ? readHead(view.result?.batch, controller.threadId) : null;
  if (batch !== null) return <BatchCard rest={rest} first={batch} onOver={onOver} />;
  return <ToolCard view={view} />;
}

/** What the user wrote, letter by letter; long texts are folded. */
function LongText({ text }: { readonly text: string }) {
  const { say } = usePage();
  const [open, setOpen] = useState(false);
  const long = text.length > LONG;
  return (
    <>
      <p className="plain">{long && !open ? `${text.slice(0, LONG)}…` : text}</p>
      {long ? (
        <button type="button" className="link" onClick={() => setOpen(!open)} aria-expanded={open}>
          {open ? say('chat.collapse') : say('chat.expand')}
        </button>
      ) : null}
    </>
  );
}
