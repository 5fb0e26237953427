import type { StructuredToolInterface } from '@langchain/core/tools';
import { z } from 'zod';
import { defineTool, failed } from './define.ts';
import { virtualPath } from './paths.ts';
import { markOf, READ_MARK } from './read-mark.ts';

export interface ReadSettings {
  /** Longest answer in characters, marker included. */
  readonly maxCharacters: number;
  readonly secrets: readonly string[];
}

/** Files beyond this are not loaded into memory to show a part of them. */
const MAX_BYTES = 20 * 1024 * 1024;
const BINARY_PROBE = 8_192;

/** Reads a text file, or lines of it (TOOL-3). The marker of a cut answer names the `start_line` that continues it. */
export function readFileTool(settings: ReadSettings): StructuredToolInterface {
  return defineTool({
    name: 'read_file',
    description: `Reads a text file. Answers at most ${settings.maxCharacters} characters; a longer file ends with a note that says which start_line continues it. Lines count from 1; end_line is included.`,
    schema: z.object({
      description: z.string().describe('In a few words: why you read this file.'),
      path: z.string().describe('Path of the file.'),
      start_line: z.number().int().optional().describe('First line to read, from 1.'),
      end_line: z.number().int().optional().describe('Last line to read, included.'),
    }),
    repeatable: true,
    secrets: settings.secrets,
    async run({ path, start_line, end_line }, { sandbox, hider }) {
      if (start_line !== undefined && start_line < 1) return failed('start_line must be 1 or more.');
      if (end_line !== undefined && end_line < (start_line ?? 1))
        return failed(`end_line (${end_line}) is before start_line (${start_line ?? 1}).`);
      const box = await sandbox();
      const bytes = await box.files.read(virtualPath(path), { maxBytes: MAX_BYTES });
      if (isBinary(bytes))
        return failed(
          `${path} is a binary file (${bytes.length} bytes). ${box.canExecute ? 'Look at it with bash, e.g. `file` or a program for its format.' : 'It cannot be shown as text.'}`,
        );
      const text = numbered(
        new TextDecoder().decode(bytes),
        path,
        start_line ?? 1,
        end_line,
        settings.maxCharacters,
        await hider(),
      );
      // Of the very bytes that are shown, and of the whole file also when a part is (SG-03, SG-04).
      return { text, kwargs: { [READ_MARK]: await markOf(virtualPath(path), bytes) } };
    },
  });
}

/**
 * The lines from `start` to `end` as far as they fit, with a marker in lines when something is left.
 *
 * @param hide takes secrets out of a line that is cut
 */
export function numbered(
  text: string,
  path: string,
  start: number,
  end: number | undefined,
  limit: number,
  hide: (line: string) => string = (line) => line,
): string {
  if (text === '') return '(empty file)';
  const lines = text.split('\n');
  if (lines.length > 1 && lines.at(-1) === '') lines.pop();
  if (start > lines.length)
    return failed(`${path} has only ${lines.length} lines; start_line ${start} is beyond its end.`);
  const last = Math.min(end ?? lines.length, lines.length);
  const wanted = lines.slice(start - 1, last);
  const whole = wanted.join('\n');
  if (whole.length <= limit) return whole;
  const note = (shown: number): string =>
    `\n[Lines ${start}–${shown} of ${lines.length} are shown. Continue with start_line=${shown + 1}.]`;
  let size = 0;
  let count = 0;
  const room = limit - note(lines.length).length;
  for (const line of wanted) {
    if (size + line.length + 1 > room) break;
    size += line.length + 1;
    count++;
  }
  if (count > 0) return `${wanted.slice(0, count).join('\n')}${note(start + count - 1)}`;
  const long = `\n[Line ${start} of ${lines.length} is longer than this tool can show (${wanted[0]?.length ?? 0} characters); the rest of it was left out.${start < last ? ` Continue with start_line=${start + 1}.` : ''}]`;
  return `${hide(wanted[0] ?? '').slice(0, limit - long.length)}${long}`;
}

function isBinary(bytes: Uint8Array): boolean {
  if (bytes.subarray(0, BINARY_PROBE).includes(0)) return true;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return false;
  } catch {
    return true;
  }
}
