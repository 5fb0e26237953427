import { isId, ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';

export type BatchAction =
  | {
      readonly action: 'start';
      readonly file: string;
      readonly prompt: string;
      readonly title: string | undefined;
      readonly concurrency: number | undefined;
      readonly attempts: number | undefined;
      readonly keyColumn: string | undefined;
      /** By what a result is judged. */
      readonly acceptance: string | undefined;
      /** A file with a JSON Schema for results. */
      readonly schema: string | undefined;
      readonly agent: string | undefined;
      readonly model: string | undefined;
      readonly thread: string | undefined;
      /** Where the table of results goes; default beside the input. */
      readonly output: string | undefined;
      readonly detach: boolean;
    }
  | { readonly action: 'watch' | 'cancel'; readonly id: string }
  | {
      readonly action: 'results';
      readonly id: string;
      readonly format: 'csv' | 'jsonl';
      readonly output: string | undefined;
    }
  | { readonly action: 'list' };

const ACTIONS = ['start', 'watch', 'results', 'cancel', 'list'] as const;
const bad = (message: string) => new ReindeerError('bad_request', message);

type Values = Readonly<Record<string, string | boolean | undefined>>;

/** Reads the words behind `reindeer batch`. Throws `bad_request`. */
export function batchAction(words: readonly string[], values: Values): BatchAction {
  const [name, subject, ...rest] = words;
  const action = ACTIONS.find((known) => known === name);
  if (action === undefined)
    throw bad(
      `Say what to do with a batch: ${ACTIONS.join(', ')}.${name === undefined ? '' : didYouMean(name, ACTIONS)}`,
    );
  const spare = action === 'list' ? subject : rest[0];
  if (spare !== undefined)
    throw bad(`"${spare}" is one word too many for reindeer batch ${action}. Put quotes around text with spaces.`);
  if (action === 'list') return { action };
  const text = (key: string) => {
    const value = values[key];
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  if (action === 'start') {
    if (subject === undefined)
      throw bad('Say which table, as in: reindeer batch start cities.csv --prompt "What is {{city}} known for?"');
    const prompt = text('prompt');
    if (prompt === undefined) throw bad('Say what to do with each row: --prompt "…", with {{column}} for its values.');
    if (values.detach === true && values.attach !== true)
      throw bad('--detach needs --attach: without a server nobody would work on the batch.');
    const thread = text('thread');
    if (thread !== undefined && !isId(thread))
      throw bad(`"${thread}" is not a thread id. Use 1 to 64 letters, digits, "_" or "-".`);
    return {
      action,
      file: subject,
      prompt,
      title: text('title'),
      concurrency: whole('concurrency', text('concurrency'), 1_024),
      attempts: whole('attempts', text('attempts'), 10),
      keyColumn: text('key-column'),
      acceptance: text('acceptance'),
      schema: text('schema'),
      agent: text('agent'),
      model: text('model'),
      thread,
      output: text('output'),
      detach: values.detach === true,
    };
  }
  if (subject === undefined || !isId(subject))
    throw bad(`Say which batch, by the id that reindeer batch start showed: reindeer batch ${action} <id>`);
  if (action !== 'results') return { action, id: subject };
  const format = text('format') ?? (/\.jsonl$/i.test(text('output') ?? '') ? 'jsonl' : 'csv');
  if (format !== 'csv' && format !== 'jsonl') throw bad(`--format ${format} is none of: csv, jsonl.`);
  return { action, id: subject, format, output: text('output') };
}

function whole(name: string, value: string | undefined, most: number): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!Number.isInteger(number) || number < 1 || number > most)
    throw bad(`--${name} ${value} is no whole number from 1 to ${most}.`);
  return number;
}

export const BATCH_HELP = `reindeer batch start <table> --prompt "<what to do with {{column}}>" [options]
reindeer batch watch <id>
reindeer batch results <id> [--format csv|jsonl] [--output <file>]
reindeer batch cancel <id>
reindeer batch list

  <table>        a CSV or TSV with a header line, or JSON objects one per line: one item per row
  --prompt       the task of one row; {{column}} stands for its value
  --concurrency  items at work at once; default 3
  --attempts     tries per item; default 3
  --key-column   the column that names the items; else key, id, or the number of the row
  --acceptance   when a result is good, with {{column}}: each is judged, and the table says what came of it
  --schema       a file with a JSON Schema: results are JSON under it, its properties are columns
  --agent        the sub-agent that does the items; default general-purpose
  --model        name of a configured model
  --thread       work with the files of this thread; a new one otherwise
  --title        a name for lists
  --output       where the table of results goes; default <table>.results.csv
  --detach       with --attach: start, and do not wait
  --json         progress as one JSON object per line on standard output
  --attach       let the server that is running do it (found by itself; --host and --port name another, REINDEER_TOKEN its token)

Without --attach the batch is worked on here, until it is over. Ctrl-C stops; reindeer batch watch <id>, or a server, goes on with it.
Exit code: 0 all succeeded, 1 some did not, 2 wrong usage, 130 stopped.
`;
