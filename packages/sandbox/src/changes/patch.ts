import { structuredPatch } from 'diff';

export interface Patch {
  /** Hunks without a file header. */
  readonly text: string;
  readonly additions: number;
  readonly deletions: number;
}

const LONGEST_SEARCH_MS = 2_000;
const MOST_EDITS = 2_000;

/**
 * The difference of two texts by lines. Searched in small steps between which everything else goes on; null = they differ in so much that
 * the search was given up. One side empty is the whole of the other, without a search.
 */
export async function patchOf(before: string, after: string): Promise<Patch | null> {
  if (before === '' || after === '') return wholeOf(before === '' ? after : before, before === '' ? '+' : '-');
  const found = await new Promise<ReturnType<typeof structuredPatch> | undefined>((resolve) => {
    structuredPatch('', '', before, after, undefined, undefined, {
      context: 3,
      timeout: LONGEST_SEARCH_MS,
      maxEditLength: MOST_EDITS,
      callback: resolve,
    });
  });
  if (found === undefined) return null;
  let additions = 0;
  let deletions = 0;
  const parts: string[] = [];
  for (const { oldStart, oldLines, newStart, newLines, lines } of found.hunks) {
    parts.push(`@@ -${oldStart},${oldLines} +${newStart},${newLines} @@`);
    for (const line of lines) {
      if (line.startsWith('+')) additions += 1;
      else if (line.startsWith('-')) deletions += 1;
      parts.push(line);
    }
  }
  return { text: parts.length === 0 ? '' : `${parts.join('\n')}\n`, additions, deletions };
}

function wholeOf(text: string, sign: '+' | '-'): Patch {
  if (text === '') return { text: '', additions: 0, deletions: 0 };
  const ends = text.endsWith('\n');
  const lines = (ends ? text.slice(0, -1) : text).split('\n');
  const head = sign === '+' ? `@@ -0,0 +1,${lines.length} @@` : `@@ -1,${lines.length} +0,0 @@`;
  const tail = ends ? [] : ['\\ No newline at end of file'];
  const body = [head, ...lines.map((line) => sign + line), ...tail].join('\n');
  const count = lines.length;
  return { text: `${body}\n`, additions: sign === '+' ? count : 0, deletions: sign === '-' ? count : 0 };
}
