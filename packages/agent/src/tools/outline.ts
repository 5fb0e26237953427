/** One heading of a text. */
export interface OutlineEntry {
  readonly title: string;
  /** From 1, as `read_file` counts. */
  readonly line: number;
}

const MOST = 50;
const LONGEST = 200;

/**
 * Headings of a text with their lines (FILE-2b): Markdown headings; lines that are bold as a whole, as converters write the headings of reports
 * ("**Item 1. Business**", also split into several bold parts); numbered headings in Chinese. Nothing inside of code.
 */
export function outlineOf(text: string): { readonly entries: readonly OutlineEntry[]; readonly truncated: boolean } {
  const entries: OutlineEntry[] = [];
  let inCode = false;
  for (const [index, line] of text.split('\n').entries()) {
    if (/^\s{0,3}(```|~~~)/.test(line)) inCode = !inCode;
    const title = inCode ? null : headingOf(line);
    if (title === null) continue;
    if (entries.length >= MOST) return { entries, truncated: true };
    entries.push({ title: title.slice(0, LONGEST), line: index + 1 });
  }
  return { entries, truncated: false };
}

function headingOf(line: string): string | null {
  const text = line.trim();
  if (text === '' || text.length > 400) return null;
  // Taken apart by hand: an expression for "spaces, text, spaces, hashes" costs the cube of the line's length, on the server's own thread.
  const hashes = /^#{1,6}(?=\s)/.exec(text)?.[0].length;
  if (hashes !== undefined) {
    let end = text.length;
    while (text[end - 1] === '#') end -= 1;
    return text.slice(hashes, Math.max(end, hashes)).replaceAll('**', '').trim() || null;
  }
  // All of the line is bold, in one part or several: "**1** **Introduction**".
  if (/^(?:\*\*[^*]+\*\*\s*){1,6}$/.test(text)) {
    const title = text.replaceAll('**', '').replace(/\s+/g, ' ').trim();
    return isTitle(title) ? title : null;
  }
  return /^第[一二三四五六七八九十百零〇\d]{1,5}[章节節部分篇条條]/.test(text) && text.length <= 60 ? text : null;
}

/** A bold sentence is emphasis; a heading is short and does not end as one. */
const isTitle = (text: string): boolean =>
  text.length <= 120 && !/[.;:,。；：，]$/.test(text) && /[\p{L}\p{N}]/u.test(text);

/** Markdown that a conversion put beside a document: `report.pdf.md` where `report.md` was another file, else `report.md`. */
export const companionsOf = (name: string): readonly string[] => [`${name}.md`, `${name.replace(/\.[^.]+$/, '')}.md`];
