import { useId, useState } from 'react';
import { CodeBlock } from '../parts/code-block.tsx';
import { usePage, useSay } from '../parts/page-context.tsx';
import { toolTitle } from '../words/tools.ts';
import type { Decision, Interrupt, PendingAction } from './interrupts.ts';
import { isDictionary } from './wire.ts';

interface ApprovalCardProps {
  readonly interrupts: readonly Interrupt[];
  readonly busy: boolean;
  readonly onResume: (answers: readonly (readonly Decision[] | string)[]) => void;
}

/** What the run waits for: decisions on tool calls, or an answer in words. */
export function ApprovalCard({ interrupts, busy, onResume }: ApprovalCardProps) {
  const say = useSay();
  const titleId = useId();
  const [decisions, setDecisions] = useState<ReadonlyMap<string, Decision | string>>(new Map());
  const keys = interrupts.flatMap((interrupt, index) =>
    (interrupt.actions ?? [null]).map((_action, place) => `${index}-${place}`),
  );
  const ends = interrupts.flatMap(({ expiresAt: at }) => (at === null ? [] : [at]));
  const expiresAt = ends.length === 0 ? null : Math.min(...ends);
  const complete = keys.every((key) => decisions.has(key) && decisions.get(key) !== '');
  const decide = (key: string, decision: Decision | string) => setDecisions(new Map(decisions).set(key, decision));
  const send = () =>
    onResume(
      interrupts.map((interrupt, index) => {
        if (interrupt.actions === null) return String(decisions.get(`${index}-0`) ?? '');
        return interrupt.actions.map((_action, place): Decision => {
          const decision = decisions.get(`${index}-${place}`);
          return typeof decision === 'object' ? decision : { type: 'reject', message: '' };
        });
      }),
    );
  return (
    <section className="question" aria-labelledby={titleId}>
      <h3 id={titleId}>{say('approval.title')}</h3>
      {expiresAt === null ? null : (
        <p className="note">{say('approval.expires', { time: new Date(expiresAt).toLocaleString() })}</p>
      )}
      {interrupts.map((interrupt, index) =>
        interrupt.actions === null ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: interrupts may have no id, and their list does not change while it is shown
          <FreeAnswer key={index} value={interrupt.value} onChange={(text) => decide(`${index}-0`, text)} />
        ) : (
          interrupt.actions.map((action, place) => (
            <ActionCard
              // biome-ignore lint/suspicious/noArrayIndexKey: see above
              key={`${index}-${place}`}
              action={action}
              decision={decisions.get(`${index}-${place}`)}
              onDecide={(decision) => decide(`${index}-${place}`, decision)}
            />
          ))
        ),
      )}
      <button type="button" className="primary" disabled={busy || !complete} onClick={send}>
        {say('approval.send')}
      </button>
    </section>
  );
}

interface ActionCardProps {
  readonly action: PendingAction;
  readonly decision: Decision | string | undefined;
  readonly onDecide: (decision: Decision | string) => void;
}

function ActionCard({ action, decision, onDecide }: ActionCardProps) {
  const { say, language } = usePage();
  const [argsText, setArgsText] = useState(() => JSON.stringify(action.args, null, 2));
  const [reason, setReason] = useState('');
  const [invalid, setInvalid] = useState(false);
  const chosen = typeof decision === 'object' ? decision.type : null;
  // An edit that does not parse yet is chosen, but no decision: '' keeps the button of the card closed.
  const [editing, setEditing] = useState(false);
  const edit = (text: string) => {
    setArgsText(text);
    const args = parse(text);
    setInvalid(args === null);
    onDecide(args === null ? '' : { type: 'edit', name: action.name, args });
  };
  const choose = (type: Decision['type']) => {
    setEditing(type === 'edit');
    if (type === 'approve') onDecide({ type });
    else if (type === 'reject') onDecide({ type, message: reason });
    else edit(argsText);
  };
  return (
    <div className="action">
      <p>
        <strong>{toolTitle(action.name, language)}</strong>
        {action.description === null ? null : <span className="note"> {action.description}</span>}
      </p>
      {editing ? (
        <>
          <textarea
            aria-label={say('approval.arguments')}
            aria-invalid={invalid}
            rows={Math.min(12, argsText.split('\n').length + 1)}
            value={argsText}
            onChange={(event) => edit(event.target.value)}
          />
          {invalid ? (
            <p role="alert" className="trouble">
              {say('approval.invalid')}
            </p>
          ) : null}
        </>
      ) : (
        <CodeBlock>{JSON.stringify(action.args, null, 2)}</CodeBlock>
      )}
      <div className="options">
        {action.allowed.map((type) => (
          <button
            key={type}
            type="button"
            aria-pressed={type === 'edit' ? editing : chosen === type && !editing}
            onClick={() => choose(type)}
          >
            {say(`approval.${type}`)}
          </button>
        ))}
      </div>
      {chosen === 'reject' ? (
        <input
          aria-label={say('approval.reason')}
          placeholder={say('approval.reason')}
          value={reason}
          onChange={(event) => {
            setReason(event.target.value);
            onDecide({ type: 'reject', message: event.target.value });
          }}
        />
      ) : null}
    </div>
  );
}

function FreeAnswer({ value, onChange }: { readonly value: unknown; readonly onChange: (text: string) => void }) {
  const say = useSay();
  return (
    <div className="action">
      {typeof value === 'string' ? <p>{value}</p> : <CodeBlock>{JSON.stringify(value, null, 2) ?? ''}</CodeBlock>}
      <input
        aria-label={say('approval.answer')}
        placeholder={say('approval.answer')}
        onChange={(event) => onChange(event.target.value)}
      />
    </div>
  );
}

function parse(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text);
    return isDictionary(value) ? value : null;
  } catch {
    return null;
  }
}
