import { type FormEvent, useEffect, useId, useRef, useState } from 'react';
import { useSay } from '../parts/page-context.tsx';
import { type Field, formText, missingFields } from './question.ts';
import type { QuestionView } from './turns.ts';

type Value = string | boolean | readonly string[];

interface QuestionCardProps {
  readonly view: QuestionView;
  readonly busy: boolean;
  readonly onAnswer: (reply: { kind: 'option' | 'text'; value: string; optionId?: string }) => void;
}

/** A question of the agent: buttons, a form, or words. Answered ones show the answer. */
export function QuestionCard({ view, busy, onAnswer }: QuestionCardProps) {
  const say = useSay();
  const titleId = useId();
  const { question } = view;
  return (
    <section className="question" aria-labelledby={titleId}>
      {question.title === null ? null : <p className="note">{question.title}</p>}
      <h3 id={titleId}>{question.question}</h3>
      {question.context === null ? null : <p>{question.context}</p>}
      {view.open ? (
        <Answering view={view} busy={busy} onAnswer={onAnswer} />
      ) : (
        <p className="note">
          {view.answer === null ? say('question.closed') : say('question.answered', { answer: view.answer })}
        </p>
      )}
    </section>
  );
}

function Answering({ view, busy, onAnswer }: QuestionCardProps) {
  const { question } = view;
  if (question.mode === 'form') return <Form fields={question.fields} busy={busy} onAnswer={onAnswer} />;
  return (
    <>
      {question.options.length === 0 ? null : (
        <div className="options">
          {question.options.map((option) => (
            <button
              key={option.id}
              type="button"
              disabled={busy}
              onClick={() => onAnswer({ kind: 'option', value: option.value, optionId: option.id })}
            >
              {option.label}
            </button>
          ))}
        </div>
      )}
      {question.mode === 'choice' ? null : (
        <FreeText busy={busy} other={question.options.length > 0} onAnswer={onAnswer} />
      )}
    </>
  );
}

function FreeText({
  busy,
  other,
  onAnswer,
}: {
  readonly busy: boolean;
  readonly other: boolean;
  readonly onAnswer: QuestionCardProps['onAnswer'];
}) {
  const say = useSay();
  const [text, setText] = useState('');
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim() !== '') onAnswer({ kind: 'text', value: text.trim() });
  };
  return (
    <form className="inline" onSubmit={submit}>
      <input
        value={text}
        onChange={(event) => setText(event.target.value)}
        aria-label={other ? say('question.other') : say('approval.answer')}
        placeholder={other ? say('question.other') : say('approval.answer')}
      />
      <button type="submit" disabled={busy || text.trim() === ''}>
        {say('question.send')}
      </button>
    </form>
  );
}

const INVALID = ':is(input, select, textarea)[aria-invalid=true], fieldset[aria-invalid=true] input';

function Form({
  fields,
  busy,
  onAnswer,
}: {
  readonly fields: readonly Field[];
  readonly busy: boolean;
  readonly onAnswer: QuestionCardProps['onAnswer'];
}) {
  const say = useSay();
  const [values, setValues] = useState<ReadonlyMap<string, Value>>(new Map());
  const [missing, setMissing] = useState<readonly string[]>([]);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (missing.length > 0) form.current?.querySelector<HTMLElement>(INVALID)?.focus();
  }, [missing]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const lacking = missingFields(fields, values);
    setMissing(lacking);
    if (lacking.length === 0) onAnswer({ kind: 'text', value: formText(fields, values) });
  };
  const change = (name: string, value: Value) => setValues(new Map(values).set(name, value));
  return (
    <form ref={form} className="fields" onSubmit={submit} noValidate>
      {fields.map((field) => (
        <FieldInput
          key={field.name}
          field={field}
          value={values.get(field.name)}
          missing={missing.includes(field.name)}
          onChange={(value) => change(field.name, value)}
        />
      ))}
      {missing.length === 0 ? null : (
        <p role="alert" className="trouble">
          {say('question.missing')}
        </p>
      )}
      <button type="submit" disabled={busy}>
        {say('question.send')}
      </button>
    </form>
  );
}

interface FieldInputProps {
  readonly field: Field;
  readonly value: Value | undefined;
  readonly missing: boolean;
  readonly onChange: (value: Value) => void;
}

function FieldInput({ field, value, missing, onChange }: FieldInputProps) {
  const say = useSay();
  const id = useId();
  const text = typeof value === 'string' ? value : '';
  const common = { id, required: field.required, 'aria-invalid': missing, placeholder: field.placeholder };
  const label = (
    <>
      {field.label}
      {field.required ? <span className="required"> ({say('question.required')})</span> : null}
    </>
  );
  if (field.type === 'checkbox') {
    return (
      <label className="check" htmlFor={id}>
        <input
          id={id}
          type="checkbox"
          aria-invalid={missing}
          checked={value === true}
          onChange={(event) => onChange(event.target.checked)}
        />
        {label}
      </label>
    );
  }
  if (field.type === 'multi_select') {
    const chosen = Array.isArray(value) ? value : [];
    return (
      <fieldset aria-invalid={missing}>
        <legend>{label}</legend>
        {field.options.map((option) => (
          <label key={option.value} className="check">
            <input
              type="checkbox"
              checked={chosen.includes(option.value)}
              onChange={(event) =>
                onChange(
                  event.target.checked ? [...chosen, option.value] : chosen.filter((other) => other !== option.value),
                )
              }
            />
            {option.label}
          </label>
        ))}
      </fieldset>
    );
  }
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {field.type === 'textarea' ? (
        <textarea {...common} rows={3} value={text} onChange={(event) => onChange(event.target.value)} />
      ) : field.type === 'select' ? (
        <select
          id={id}
          required={field.required}
          aria-invalid={missing}
          value={text}
          onChange={(event) => onChange(event.target.value)}
        >
          <option value="">{say('question.choose')}</option>
          {field.options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      ) : (
        <input {...common} type={field.type} value={text} onChange={(event) => onChange(event.target.value)} />
      )}
    </div>
  );
}
