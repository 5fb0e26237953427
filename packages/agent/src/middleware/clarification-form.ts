import { CLARIFICATION_TOOL, CLARIFICATION_TYPES } from '../tools/ask-clarification.ts';

/** Bounds of a question (TOOL-5). A form that passes one of them is not cut but becomes a question with options or free text. */
const MAX_FIELDS = 16;
const MAX_OPTIONS = 24;
const MAX_TEXT = 200;
const MAX_BYTES = 16_384;
const RESERVED: ReadonlySet<string> = new Set([
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'valueOf',
  'hasOwnProperty',
]);
const FIELD_TYPES = ['text', 'textarea', 'number', 'select', 'multi_select', 'checkbox', 'date'] as const;
const ICONS: Readonly<Record<string, string>> = {
  missing_info: '❓',
  ambiguous_requirement: '🤔',
  approach_choice: '🔀',
  risk_confirmation: '⚠️',
  suggestion: '💡',
};

type FieldType = (typeof FIELD_TYPES)[number];

export interface FormField {
  readonly name: string;
  readonly label: string;
  readonly type: FieldType;
  readonly required: boolean;
  readonly options?: readonly string[];
  readonly placeholder?: string;
}

/** What the page needs to show a question. Version 2 is a form. */
export interface HumanInputRequest {
  readonly version: 1 | 2;
  readonly kind: 'human_input_request';
  readonly source: 'ask_clarification';
  readonly request_id: string;
  readonly clarification_type: string;
  readonly question: string;
  readonly context?: string;
  readonly input_mode: 'free_text' | 'choice_with_other' | 'form';
  readonly options?: readonly string[];
  readonly fields?: readonly FormField[];
}

/** Reads the arguments of a question, tolerant of the shapes that models send. */
export function humanInput(requestId: string, args: Readonly<Record<string, unknown>>): HumanInputRequest {
  const question = text(args.question) || 'What should I do?';
  const type = text(args.clarification_type);
  const context = text(args.context);
  const base = {
    kind: 'human_input_request' as const,
    source: CLARIFICATION_TOOL as 'ask_clarification',
    request_id: requestId,
    clarification_type: (CLARIFICATION_TYPES as readonly string[]).includes(type) ? type : 'missing_info',
    question,
    ...(context === '' ? {} : { context }),
  };
  const fields = formFields(args.fields);
  if (fields !== null) {
    const form: HumanInputRequest = { version: 2, ...base, input_mode: 'form', fields };
    if (Buffer.byteLength(JSON.stringify(form)) <= MAX_BYTES) return form;
  }
  const options = flatOptions(args.options);
  if (options.length > 0) return { version: 1, ...base, input_mode: 'choice_with_other', options };
  return { version: 1, ...base, input_mode: 'free_text' };
}

const text = (value: unknown): string => (typeof value === 'string' ? value.trim() : '');

/** Options from a list, JSON text, plain text or nested objects: trimmed, without blanks and doubles, bounded. */
function flatOptions(value: unknown): string[] {
  const found: string[] = [];
  collect(value, found, 0);
  const clean = found.map((option) => option.trim()).filter((option) => option !== '');
  return [...new Set(clean)].slice(0, MAX_OPTIONS).map((option) => option.slice(0, MAX_TEXT));
}

function collect(value: unknown, found: string[], depth: number): void {
  if (depth > 4 || found.length > MAX_OPTIONS * 2) return;
  if (typeof value === 'number' || typeof value === 'boolean') found.push(String(value));
  else if (typeof value === 'string') {
    const parsed = depth === 0 ? parsedJson(value) : undefined;
    if (parsed === undefined) found.push(value);
    else collect(parsed, found, depth + 1);
  } else if (Array.isArray(value)) for (const item of value) collect(item, found, depth + 1);
  else if (typeof value === 'object' && value !== null) {
    const { label, text: words, value: inner, title } = value as Record<string, unknown>;
    const named = [label, words, title, inner].find((item) => typeof item === 'string');
    collect(named ?? Object.values(value), found, depth + 1);
  }
}

function parsedJson(value: string): unknown {
  if (!/^\s*[[{]/.test(value)) return undefined;
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}

/** The fields of a form; null when any of it breaks a rule: a form is taken whole or not at all. */
function formFields(value: unknown): FormField[] | null {
  const list = typeof value === 'string' ? parsedJson(value) : value;
  if (!Array.isArray(list) || list.length === 0 || list.length > MAX_FIELDS) return null;
  const names = new Set<string>();
  const fields: FormField[] = [];
  for (const item of list) {
    const field = formField(item);
    if (field === null || names.has(field.name)) return null;
    names.add(field.name);
    fields.push(field);
  }
  return fields;
}

function formField(value: unknown): FormField | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  const given = value as Record<string, unknown>;
  const name = text(given.name);
  const label = text(given.label) || name;
  const placeholder = text(given.placeholder);
  if (name === '' || RESERVED.has(name) || [name, label, placeholder].some((part) => part.length > MAX_TEXT))
    return null;
  const all = given.options === undefined ? [] : rawOptions(given.options);
  if (all.length > MAX_OPTIONS || all.some((option) => option.length > MAX_TEXT)) return null;
  const type = typeOf(given.type, all);
  return {
    name,
    label,
    type,
    required: given.required === true,
    ...(type === 'select' || type === 'multi_select' ? { options: all } : {}),
    ...(placeholder === '' ? {} : { placeholder }),
  };
}

function rawOptions(value: unknown): string[] {
  const found: string[] = [];
  collect(value, found, 0);
  return [...new Set(found.map((option) => option.trim()).filter((option) => option !== ''))];
}

/** An unknown type, or a choice without options, becomes a text field. */
function typeOf(value: unknown, options: readonly string[]): FieldType {
  const type = FIELD_TYPES.find((known) => known === value) ?? 'text';
  return (type === 'select' || type === 'multi_select') && options.length === 0 ? 'text' : type;
}

/** The question as plain text that every channel can show. */
export function rendered(input: HumanInputRequest): string {
  const lines = [`${ICONS[input.clarification_type] ?? '❓'} ${input.question}`];
  if (input.context !== undefined) lines.unshift(input.context, '');
  if (input.options !== undefined) {
    lines.push('');
    for (const [index, option] of input.options.entries()) lines.push(`  ${index + 1}. ${option}`);
  }
  for (const field of input.fields ?? []) {
    const choices = field.options === undefined ? '' : ` (${field.options.join(' / ')})`;
    lines.push(`  - ${field.label}${field.required ? ' *' : ''}${choices}`);
  }
  return lines.join('\n');
}
