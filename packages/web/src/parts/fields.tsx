import { type ComponentProps, type ReactNode, useId } from 'react';
import type { ModelEntry } from '../api/api.ts';
import { useSay } from './page-context.tsx';

interface FieldProps {
  readonly label: string;
  /** A rule or a hint below it. */
  readonly note?: string;
}

interface EditProps extends FieldProps {
  readonly value: string | number;
  readonly onChange: (text: string) => void;
}

/** Attributes of an element, but for those that the field sets itself. */
type Rest<Element extends 'input' | 'textarea'> = Omit<ComponentProps<Element>, keyof EditProps | 'id'>;

function Field({ label, note, control }: FieldProps & { readonly control: (id: string) => ReactNode }) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {control(id)}
      {note === undefined ? null : <p className="note">{note}</p>}
    </div>
  );
}

/** What names a field; the note is left out where there is none. */
const named = (label: string, note: string | undefined): FieldProps =>
  note === undefined ? { label } : { label, note };

/** A line of text; numbers, dates and ranges by `type`. */
export const InputField = ({ label, note, onChange, ...rest }: EditProps & Rest<'input'>) => (
  <Field
    {...named(label, note)}
    control={(id) => <input {...rest} id={id} onChange={(event) => onChange(event.target.value)} />}
  />
);

export const TextField = ({ label, note, onChange, ...rest }: EditProps & Rest<'textarea'>) => (
  <Field
    {...named(label, note)}
    control={(id) => <textarea {...rest} id={id} onChange={(event) => onChange(event.target.value)} />}
  />
);

interface SelectFieldProps<Value extends string> extends FieldProps {
  /** One that is no option is shown as it is, so that nothing changes unasked. */
  readonly value: Value | null;
  readonly options: readonly { readonly value: Value; readonly label: string }[];
  /** What stands for null; left out = one must be chosen. */
  readonly none?: string;
  readonly onChange: (value: Value | null) => void;
}

export const SelectField = <Value extends string>(props: SelectFieldProps<Value>) => {
  const { label, note, value, options, none, onChange } = props;
  return (
    <Field
      {...named(label, note)}
      control={(id) => (
        <select
          id={id}
          value={value ?? ''}
          onChange={(event) => {
            const chosen = event.target.value;
            onChange(chosen === value ? value : (options.find((option) => option.value === chosen)?.value ?? null));
          }}
        >
          {none === undefined ? null : <option value="">{none}</option>}
          {value === null || options.some((option) => option.value === value) ? null : (
            <option value={value}>{value}</option>
          )}
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      )}
    />
  );
};

interface ModelFieldProps {
  readonly models: readonly ModelEntry[];
  /** null = the default one. */
  readonly value: string | null;
  readonly onChange: (model: string | null) => void;
}

export function ModelField({ models, value, onChange }: ModelFieldProps) {
  const say = useSay();
  return (
    <SelectField
      label={say('composer.model')}
      none={say('agents.asDefault')}
      value={value}
      options={models.map((model) => ({ value: model.name, label: model.displayName }))}
      onChange={onChange}
    />
  );
}
