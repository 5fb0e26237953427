import { ReindeerError } from '@reindeer/protocol';
import { parse } from 'csv-parse';

/** One row of a table: values by column. */
export type Row = Readonly<Record<string, string>>;

export interface TemplateItem {
  readonly key: string;
  readonly prompt: string;
  /** By what its result is judged. */
  readonly acceptance?: string;
}

/** Characters of a table, and rows of it. */
export const LONGEST_TABLE = 32 * 1024 * 1024;
const MOST_ROWS = 100_000;
const LONGEST_KEY = 128;
const PLACEHOLDER = /\{\{\s*([^{}]{1,200}?)\s*\}\}/g;
/** Rows between two breaths of the event loop. */
const BREATH = 500;

const bad = (message: string): ReindeerError => new ReindeerError('validation_failed', message);

/** `table.csv` → csv, by its name; JSON lines else. */
export const formatOf = (name: string): 'csv' | 'tsv' | 'jsonl' =>
  /\.csv$/i.test(name) ? 'csv' : /\.tsv$/i.test(name) ? 'tsv' : 'jsonl';

/** Reads a table with a header line, or JSON objects one per line. Throws `validation_failed` that names the line. */
export async function readRows(text: string, format: 'csv' | 'tsv' | 'jsonl'): Promise<Row[]> {
  if (text.length > LONGEST_TABLE) throw bad(`The table has more than ${LONGEST_TABLE} characters. Split it.`);
  const rows = format === 'jsonl' ? await readJsonLines(text) : await readTable(text, format === 'tsv' ? '\t' : ',');
  if (rows.length === 0) throw bad('The table has no rows.');
  return rows;
}

async function readTable(text: string, delimiter: string): Promise<Row[]> {
  const rows: Row[] = [];
  const parser = parse({
    bom: true,
    columns: (header: string[]) => header.map((name) => name.trim()),
    delimiter,
    skip_empty_lines: true,
    relax_column_count: false,
    max_record_size: 4 * 1024 * 1024,
  });
  const feeding = (async () => {
    for (let at = 0; at < text.length; at += 64 * 1024) {
      if (!parser.write(text.slice(at, at + 64 * 1024)))
        await new Promise<void>((resolve) => {
          parser.once('drain', resolve);
          parser.once('close', resolve);
        });
      if (parser.destroyed) return;
      // The parser works in the same turn: other work gets its turn between two pieces.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    parser.end();
  })();
  try {
    for await (const row of parser as AsyncIterable<Record<string, string>>) {
      rows.push(row);
      if (rows.length > MOST_ROWS) throw bad(`The table has more than ${MOST_ROWS} rows. Split it.`);
    }
    await feeding;
  } catch (error) {
    if (ReindeerError.is(error)) throw error;
    const { message, lines } = error as { message: string; lines?: number };
    throw bad(`The table cannot be read${lines === undefined ? '' : ` at line ${lines}`}: ${message.slice(0, 300)}`);
  } finally {
    parser.destroy();
  }
  return rows;
}

async function readJsonLines(text: string): Promise<Row[]> {
  const rows: Row[] = [];
  let line = 0;
  for (const part of text.split('\n')) {
    line += 1;
    if (line % BREATH === 0) await new Promise<void>((resolve) => setImmediate(resolve));
    if (part.trim() === '') continue;
    if (rows.length >= MOST_ROWS) throw bad(`There are more than ${MOST_ROWS} lines. Split the file.`);
    let value: unknown;
    try {
      value = JSON.parse(part);
    } catch (error) {
      throw bad(`Line ${line} is not JSON: ${(error as Error).message.slice(0, 200)}`);
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw bad(`Line ${line} must be a JSON object, as in {"name": "…"}.`);
    rows.push(
      Object.fromEntries(
        Object.entries(value).map(([key, one]) => [key, typeof one === 'string' ? one : JSON.stringify(one)]),
      ),
    );
  }
  return rows;
}

/**
 * Makes an item of each row: the template with `{{column}}` filled in, keyed by `keyColumn`, else by a column `key` or `id`, else by the
 * number of the row. What stands in a row is data: it is never read as a template.
 */
export function itemsOfRows(
  rows: readonly Row[],
  input: {
    readonly template: string;
    readonly keyColumn?: string | undefined;
    /** By what a result is judged, with the same placeholders; it need not name any. */
    readonly acceptance?: string | undefined;
  },
): TemplateItem[] {
  const columns = [...new Set(rows.slice(0, 100).flatMap((row) => Object.keys(row)))];
  const known = columns
    .map((column) => `{{${column}}}`)
    .join(', ')
    .slice(0, 1_000);
  const namesIn = (template: string): string[] => [...template.matchAll(PLACEHOLDER)].map((match) => match[1] ?? '');
  const named = namesIn(input.template);
  for (const name of [...named, ...namesIn(input.acceptance ?? '')])
    if (!columns.includes(name)) throw bad(`The template names {{${name}}}, which is no column. There are: ${known}.`);
  if (named.length === 0)
    throw bad(`The template names no column, so every item would be the same. Use one or more of: ${known}.`);
  const keyColumn = input.keyColumn ?? ['key', 'id'].find((name) => usable(rows, name));
  if (input.keyColumn !== undefined && !columns.includes(input.keyColumn))
    throw bad(
      `key_column: there is no column "${input.keyColumn.slice(0, 80)}". There are: ${columns.join(', ').slice(0, 1_000)}.`,
    );
  return rows.map((row, index) => ({
    key: keyColumn === undefined ? String(index + 1) : (row[keyColumn] ?? '').trim(),
    prompt: filled(input.template, row),
    ...(input.acceptance === undefined ? {} : { acceptance: filled(input.acceptance, row) }),
  }));
}

const filled = (template: string, row: Row): string =>
  template.replace(PLACEHOLDER, (_, name: string) => row[name] ?? '');

/** Can the column name the items? Each value there once, none empty or too long. */
function usable(rows: readonly Row[], column: string): boolean {
  const seen = new Set<string>();
  for (const row of rows) {
    const value = (row[column] ?? '').trim();
    if (value === '' || value.length > LONGEST_KEY || seen.has(value)) return false;
    seen.add(value);
  }
  return true;
}
