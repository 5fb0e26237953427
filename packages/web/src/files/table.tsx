import { parse } from 'csv-parse/browser/esm/sync';
import { usePage } from '../parts/page-context.tsx';

const MOST_ROWS = 500;
const MOST_COLUMNS = 60;

/** A table out of CSV or TSV; what cannot be read as one is shown as text by whoever asks. */
export default function Table({ text, tabs }: { readonly text: string; readonly tabs: boolean }) {
  const { say } = usePage();
  const { head, rows, more } = readTable(text, tabs);
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table must be scrollable with the keyboard */}
      <div className="table" tabIndex={0}>
        <table>
          <thead>
            <tr>
              {head.map((cell, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: cells have their place only
                <th key={index}>{cell}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, number) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows have their place only
              <tr key={number}>
                {row.map((cell, index) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: cells have their place only
                  <td key={index}>{cell}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more ? <p className="note">{say('files.rows', { count: MOST_ROWS })}</p> : null}
    </>
  );
}

/** @throws when the text is no table */
export function readTable(
  text: string,
  tabs: boolean,
): { readonly head: readonly string[]; readonly rows: readonly (readonly string[])[]; readonly more: boolean } {
  const found: string[][] = parse(text, {
    bom: true,
    record_delimiter: ['\r\n', '\n', '\r'],
    delimiter: tabs ? '\t' : ',',
    relax_column_count: true,
    relax_quotes: true,
    skip_empty_lines: true,
    to_line: 20_000,
    to: MOST_ROWS + 2,
  });
  const cut = found.map((row) => row.slice(0, MOST_COLUMNS));
  return { head: cut[0] ?? [], rows: cut.slice(1, MOST_ROWS + 1), more: cut.length > MOST_ROWS + 1 };
}
