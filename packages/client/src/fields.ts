/** What came over the wire, read without trust. */
export type Fields = Readonly<Record<string, unknown>>;

export const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

export const isWritten = (value: unknown): value is string => typeof value === 'string' && value !== '';

/** Text of a message's content: a text, or the text blocks of a list. */
export function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return listOf(content)
    .map((block) => (typeof block === 'string' ? block : String(fieldsOf(block).text ?? '')))
    .join('');
}
