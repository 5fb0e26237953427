import { Readable } from 'node:stream';
import { setImmediate as breath } from 'node:timers/promises';
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
/** Rows, and characters of a table, between two breaths of the event loop. */
const BREATH = 500;
const PIECE = 64 * 1024;
/** Characters of all prompts of a table together, with what they are judged by. A short template can repeat a long cell without end. */
const LONGEST_PROMPTS = 64 * 1024 * 1024;

const bad = (message: string): ReindeerError => new ReindeerError('validation_failed', message);

/** `table.csv` → csv, by its name; JSON lines else. */
export const formatOf = (name: string): 'csv' | 'tsv' | 'jsonl' =>
  /\.csv$/i.test(name) ? 'csv' : /\.tsv$/i.test(name) ? 'tsv' : 'jsonl';

/** The text of a file. Throws `validation_failed` for one in another encoding, whose letters would be lost without a word. */
export function decodeTable(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new ReindeerError(
      'validation_failed',
      'The file is not UTF-8. Save it as UTF-8; spreadsheets call that "CSV UTF-8".',
      { cause },
    );
  }
}

/** Reads a table with a header line, or JSON objects one per line. Throws `validation_failed` that names the line. */
export async function readRows(text: string, format: 'csv' | 'tsv' | 'jsonl'): Promise<Row[]> {
  if (text.length > LONGEST_TABLE) throw bad(`The table has more than ${LONGEST_TABLE} characters. Split it.`);
  // Spreadsheets put a mark in front.
  const body = text.startsWith('\uFEFF') ? text.slice(1) : text;
  const rows = format === 'jsonl' ? await readJsonLines(body) : await readTable(body, shapeOf(body, format));
  if (rows.length === 0) throw bad('The table has no rows.');
  return rows;
}

interface TableShape {
  readonly delimiter: string;
  /** 1, 2, …: the line of the header. */
  readonly from_line: number;
}

/**
 * What parts the columns. Where the comma is the sign of decimals spreadsheets write semicolons, and may say so in a line ahead of the header
 * (`sep=;`). A header without a comma tells as well.
 */
function shapeOf(text: string, format: 'csv' | 'tsv'): TableShape {
  if (format === 'tsv') return { delimiter: '\t', from_line: 1 };
  const said = /^sep=([;,\t])\r?\n/i.exec(text)?.[1];
  if (said !== undefined) return { delimiter: said, from_line: 2 };
  const header = (/^(?:"(?:[^"]|"")*"|[^"\r\n])*/.exec(text.slice(0, PIECE))?.[0] ?? '').replaceAll(
    /"(?:[^"]|"")*"/g,
    '',
  );
  const delimiter = [',', ';', '\t'].find((sign) => header.includes(sign));
  return { delimiter: delimiter ?? ',', from_line: 1 };
}

async function readTable(text: string, shape: TableShape): Promise<Row[]> {
  const rows: Row[] = [];
  let names: readonly string[] | null = null;
  const parser = parse({
    ...shape,
    skip_empty_lines: true,
    relax_column_count: false,
    max_record_size: 4 * 1024 * 1024,
  });
  const source = Readable.from(piecesOf(text));
  try {
    for await (const cells of source.pipe(parser) as AsyncIterable<string[]>) {
      if (names === null) {
        names = headerOf(cells);
        continue;
      }
      rows.push(rowOf(names.map((name, index) => [name, cells[index] ?? ''])));
      if (rows.length > MOST_ROWS) throw bad(`The table has more than ${MOST_ROWS} rows. Split it.`);
    }
  } catch (error) {
    if (ReindeerError.is(error)) throw error;
    const { message, lines } = error as { message: string; lines?: number };
    throw bad(`The table cannot be read${lines === undefined ? '' : ` at line ${lines}`}: ${message.slice(0, 300)}`);
  } finally {
    source.destroy();
    parser.destroy();
  }
  return rows;
}

/** The parser works in the same turn: other work gets its turn between two pieces. */
async function* piecesOf(text: string): AsyncGenerator<string> {
  for (let at = 0; at < text.length; at += PIECE) {
    yield text.slice(at, at + PIECE);
    await breath();
  }
}

function headerOf(cells: readonly string[]): readonly string[] {
  const names = cells.map((name) => name.trim());
  const twice = names.find((name, index) => name !== '' && names.indexOf(name) < index);
  if (twice !== undefined) throw bad(`Two columns are called "${twice.slice(0, 80)}". Rename one of them.`);
  return names;
}

/** Only what the table says: a cell that is missing is none that every object has. */
const rowOf = (cells: readonly (readonly [string, string])[]): Row =>
  Object.assign(Object.create(null) as Record<string, string>, Object.fromEntries(cells));

async function readJsonLines(text: string): Promise<Row[]> {
  const rows: Row[] = [];
  for (let line = 1, at = 0; at < text.length; line += 1) {
    if (line % BREATH === 0) await breath();
    const end = text.indexOf('\n', at);
    const part = text.slice(at, end < 0 ? text.length : end);
    at = end < 0 ? text.length : end + 1;
    if (part.trim() === '') continue;
    if (rows.length >= MOST_ROWS) throw bad(`There are more than ${MOST_ROWS} lines. Split the file.`);
    rows.push(readLine(part, line));
  }
  return rows;
}

function readLine(text: string, line: number): Row {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw bad(`Line ${line} is not JSON: ${(error as Error).message.slice(0, 200)}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw bad(`Line ${line} must be a JSON object, as in {"name": "…"}.`);
  try {
    return rowOf(Object.entries(value).map(([key, one]) => [key, typeof one === 'string' ? one : JSON.stringify(one)]));
  } catch (cause) {
    throw new ReindeerError('validation_failed', `Line ${line} is nested too deeply.`, { cause });
  }
}

/**
 * Makes an item of each row: the template with `{{column}}` filled in, keyed by `keyColumn`, else by a column `key` or `id`, else by the
 * number of the row. What stands in a row is data: it is never read as a template. Throws `validation_failed`.
 */
export async function itemsOfRows(rows: readonly Row[], input: ItemTemplates): Promise<TemplateItem[]> {
  const keyColumn = checkTemplates(rows, input);
  const items: TemplateItem[] = [];
  let characters = 0;
  for (const [index, row] of rows.entries()) {
    if (index % BREATH === BREATH - 1) await breath();
    const filled = (template: string): string => {
      characters += filledLength(template, row);
      if (characters > LONGEST_PROMPTS)
        throw bad(
          `The prompts have more than ${LONGEST_PROMPTS} characters together, by row ${index + 1}. Use shorter cells, or name files.`,
        );
      return template.replace(PLACEHOLDER, (_, name: string) => row[name] ?? '');
    };
    items.push({
      key: keyColumn === undefined ? String(index + 1) : (row[keyColumn] ?? '').trim(),
      prompt: filled(input.template),
      ...(input.acceptance === undefined ? {} : { acceptance: filled(input.acceptance) }),
    });
  }
  return items;
}

interface ItemTemplates {
  readonly template: string;
  readonly keyColumn?: string | undefined;
  /** By what a result is judged, with the same placeholders; it need not name any. */
  readonly acceptance?: string | undefined;
}

/** The column that names the items; undefined = their number does. */
function checkTemplates(rows: readonly Row[], input: ItemTemplates): string | undefined {
  const columns = [...new Set(rows.slice(0, 100).flatMap((row) => Object.keys(row)))].filter((name) => name !== '');
  const known = columns
    .map((column) => `{{${column}}}`)
    .join(', ')
    .slice(0, 1_000);
  const named = namesIn(input.template);
  const isColumn = (name: string): boolean => columns.includes(name) || rows.some((row) => Object.hasOwn(row, name));
  for (const name of [...named, ...namesIn(input.acceptance ?? '')])
    if (!isColumn(name)) throw bad(`The template names {{${name}}}, which is no column. There are: ${known}.`);
  if (named.length === 0)
    throw bad(`The template names no column, so every item would be the same. Use one or more of: ${known}.`);
  if (input.keyColumn !== undefined && !isColumn(input.keyColumn))
    throw bad(
      `key_column: there is no column "${input.keyColumn.slice(0, 80)}". There are: ${columns.join(', ').slice(0, 1_000)}.`,
    );
  return input.keyColumn ?? ['key', 'id'].find((name) => usable(rows, name));
}

const namesIn = (template: string): string[] => [...template.matchAll(PLACEHOLDER)].map((match) => match[1] ?? '');

/** At most what the filled template has. */
const filledLength = (template: string, row: Row): number =>
  namesIn(template).reduce((sum, name) => sum + (row[name] ?? '').length, template.length);

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
