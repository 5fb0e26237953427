import { type Dictionary, isDictionary, listOf, textOr } from './wire.ts';

/** A question of the agent that waits for an answer by buttons, a form, or text. */
export interface Question {
  readonly requestId: string;
  readonly source: string;
  readonly title: string | null;
  readonly question: string;
  readonly context: string | null;
  readonly mode: 'text' | 'choice' | 'choice-or-text' | 'form';
  readonly options: readonly { readonly id: string; readonly label: string; readonly value: string }[];
  readonly fields: readonly Field[];
}

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly type: 'text' | 'textarea' | 'number' | 'select' | 'multi_select' | 'checkbox' | 'date';
  readonly required: boolean;
  readonly placeholder: string;
  readonly options: readonly { readonly label: string; readonly value: string }[];
}

const FIELD_TYPES = ['text', 'textarea', 'number', 'select', 'multi_select', 'checkbox', 'date'] as const;
const MODES: Readonly<Record<string, Question['mode']>> = {
  free_text: 'text',
  single_choice: 'choice',
  choice_with_other: 'choice-or-text',
  form: 'form',
};

/** Reads the artifact of a tool message. null = none, or malformed: the text of the message is shown then. */
export function readQuestion(artifact: unknown): Question | null {
  const input = isDictionary(artifact) ? artifact.human_input : null;
  if (!isDictionary(input) || input.kind !== 'human_input_request') return null;
  const requestId = textOr(input.request_id, '');
  const question = textOr(input.question, '');
  const mode = MODES[textOr(input.input_mode, '')];
  if (requestId === '' || question === '' || mode === undefined) return null;
  const options = listOf(input.options).map(readOption);
  const fields = listOf(input.fields).map(readField);
  if (options.includes(null) || fields.includes(null)) return null;
  const known = fields.filter((field) => field !== null);
  if (new Set(known.map((field) => field.name)).size !== known.length) return null;
  if (mode === 'form' && known.length === 0) return null;
  if (mode === 'choice' && options.length === 0) return null;
  return {
    requestId,
    source: textOr(input.source, 'ask_clarification'),
    title: textOr(input.title, null),
    question,
    context: textOr(input.context, null),
    mode,
    options: options.filter((option) => option !== null),
    fields: known,
  };
}

function readOption(value: unknown, index: number): Question['options'][number] | null {
  if (typeof value === 'string') return { id: `option-${index + 1}`, label: value, value };
  if (!isDictionary(value)) return null;
  const label = textOr(value.label, textOr(value.value, ''));
  if (label === '') return null;
  return { id: textOr(value.id, `option-${index + 1}`), label, value: textOr(value.value, label) };
}

function readField(value: unknown): Field | null {
  if (!isDictionary(value)) return null;
  const name = textOr(value.name, '');
  // A name such as __proto__ would change an object instead of being a key of it.
  if (name === '' || name in Object.prototype) return null;
  const type = FIELD_TYPES.find((known) => known === value.type) ?? 'text';
  const options = listOf(value.options).map((option, index) => readOption(option, index));
  if (options.includes(null)) return null;
  if ((type === 'select' || type === 'multi_select') && options.length === 0) return null;
  return {
    name,
    label: textOr(value.label, name),
    type,
    required: value.required === true,
    placeholder: textOr(value.placeholder, ''),
    options: options.filter((option) => option !== null),
  };
}

/** The hidden human message that answers a question. */
export function replyMessage(
  id: string,
  question: Pick<Question, 'requestId' | 'source'>,
  reply: { readonly kind: 'option' | 'text'; readonly value: string; readonly optionId?: string },
): Dictionary {
  return {
    type: 'human',
    id,
    content: reply.value,
    additional_kwargs: {
      hide_from_ui: true,
      human_input_response: {
        version: 1,
        kind: 'human_input_response',
        source: question.source,
        request_id: question.requestId,
        response_kind: reply.kind,
        value: reply.value,
        ...(reply.optionId === undefined ? {} : { option_id: reply.optionId }),
      },
    },
  };
}

/** Form values as text that a model reads well: one line per field that was filled in. */
export function formText(
  fields: readonly Field[],
  values: ReadonlyMap<string, string | boolean | readonly string[]>,
): string {
  const lines: string[] = [];
  for (const field of fields) {
    const value = values.get(field.name);
    if (value === undefined || value === '' || (Array.isArray(value) && value.length === 0)) continue;
    const text =
      typeof value === 'boolean' ? (value ? 'yes' : 'no') : typeof value === 'string' ? value : value.join(', ');
    lines.push(`${field.label}: ${text}`);
  }
  return lines.join('\n');
}

/** Names of required fields that are empty. */
export function missingFields(
  fields: readonly Field[],
  values: ReadonlyMap<string, string | boolean | readonly string[]>,
): string[] {
  return fields
    .filter((field) => {
      if (!field.required) return false;
      const value = values.get(field.name);
      if (field.type === 'checkbox') return value !== true;
      return (
        value === undefined ||
        (typeof value === 'string' ? value.trim() === '' : Array.isArray(value) && value.length === 0)
      );
    })
    .map((field) => field.name);
}
