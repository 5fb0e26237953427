/** What a long text is, told in a few lines, so that the model knows where to look in the file (MW-2). */
export interface Synopsis {
  readonly type: 'json' | 'csv' | 'tsv' | 'yaml' | 'xml' | 'code' | 'text' | 'unknown';
  /** A few lines; no more than about 1,500 characters. */
  readonly lines: readonly string[];
}

/** Longer texts are not parsed whole: parsing would hold up everything else. */
const MAX_PARSED = 2_000_000;
/** How much of the beginning is looked at to tell what a text is. */
const PROBE = 64 * 1024;
const MAX_ITEMS = 24;
const MAX_NAME = 60;

export function synopsisOf(text: string): Synopsis {
  const probe = text.slice(0, PROBE);
  if (probe.includes('\0')) return { type: 'unknown', lines: ['binary data'] };
  return json(text, probe) ?? xml(probe) ?? table(text, probe) ?? code(probe) ?? yaml(probe) ?? plain(text);
}

const short = (name: string): string => (name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name);
const listed = (items: readonly string[]): string => {
  const shown = items.slice(0, MAX_ITEMS).map(short).join(', ');
  return items.length > MAX_ITEMS ? `${shown}, … (${items.length} in all)` : shown;
};

function json(text: string, probe: string): Synopsis | null {
  if (!/^\s*[[{]/.test(probe)) return null;
  if (text.length <= MAX_PARSED) {
    try {
      return { type: 'json', lines: shapeOf(JSON.parse(text)) };
    } catch {
      return lines(probe).length > 1 && jsonLines(probe) ? { type: 'json', lines: ['one JSON value per line'] } : null;
    }
  }
  // Too long to parse: the keys near its beginning tell what it is about.
  const keys = [...probe.matchAll(/"((?:[^"\\\n]|\\.){1,100})"\s*:/g)].map((match) => match[1] ?? '');
  if (keys.length === 0) return null;
  const kind = /^\s*\[/.test(probe) ? 'an array' : 'an object';
  return {
    type: 'json',
    lines: [`${kind}, not parsed because of its length`, `keys seen first: ${listed(unique(keys))}`],
  };
}

function jsonLines(probe: string): boolean {
  return lines(probe)
    .slice(0, 3)
    .every((line) => {
      try {
        return typeof JSON.parse(line) === 'object';
      } catch {
        return false;
      }
    });
}

function shapeOf(value: unknown): string[] {
  const found: string[] = [Array.isArray(value) ? `an array of ${value.length} items` : describe(value)];
  const paths: string[] = [];
  const queue: { readonly path: string; readonly value: unknown; readonly depth: number }[] = [
    { path: '', value, depth: 0 },
  ];
  while (queue.length > 0 && paths.length < MAX_ITEMS) {
    const item = queue.shift();
    if (item === undefined || item.depth > 3) continue;
    if (Array.isArray(item.value)) {
      if (item.value.length > 0) queue.push({ path: `${item.path}[]`, value: item.value[0], depth: item.depth + 1 });
    } else if (typeof item.value === 'object' && item.value !== null)
      for (const [key, inner] of Object.entries(item.value).slice(0, MAX_ITEMS)) {
        const path = item.path === '' ? short(key) : `${item.path}.${short(key)}`;
        paths.push(`${path}: ${describe(inner)}`);
        queue.push({ path, value: inner, depth: item.depth + 1 });
      }
  }
  if (paths.length > 0) found.push(`key paths: ${paths.slice(0, MAX_ITEMS).join('; ')}`);
  return found;
}

function describe(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return `array(${value.length})`;
  if (typeof value === 'object') return `object(${Object.keys(value).length} keys)`;
  return typeof value;
}

function xml(probe: string): Synopsis | null {
  if (!/^\s*<(\?xml|!doctype|!--|[A-Za-z][\w:.-]*[\s/>])/i.test(probe)) return null;
  const names = [...probe.matchAll(/<([A-Za-z][\w:.-]{0,60})[\s/>]/g)].map((match) => match[1] ?? '');
  if (names.length === 0) return null;
  return { type: 'xml', lines: [`root: ${short(names[0] ?? '')}`, `elements: ${listed(unique(names))}`] };
}

/** Columns only when many lines agree: indented scripts have tabs and prose has commas too. */
function table(text: string, probe: string): Synopsis | null {
  const rows = lines(probe).filter((line) => line.trim() !== '');
  if (probe.length < text.length) rows.pop();
  const sample = rows.slice(0, 50);
  if (sample.length < 3) return null;
  for (const [type, separator] of [
    ['tsv', '\t'],
    ['csv', ','],
  ] as const) {
    // A tab at the beginning of a line is indentation.
    if (separator === '\t' && sample.some((line) => line.startsWith('\t'))) continue;
    const counts = sample.map((line) => fields(line, separator));
    const columns = counts[0] ?? 0;
    if (columns < 2 || counts.filter((count) => count === columns).length < counts.length * 0.9) continue;
    const names = (sample[0] ?? '').split(separator).map((name) => name.replace(/^\s*"?|"?\s*$/g, ''));
    // A heading names columns; a sentence with commas does not.
    if (separator === ',' && /, /.test(sample[0] ?? '')) continue;
    if (names.some((name) => name === '' || name.split(/\s+/).length > 5)) continue;
    return { type, lines: [`${columns} columns: ${listed(names)}`, `about ${countLines(text)} rows`] };
  }
  return null;
}

function fields(line: string, separator: string): number {
  let count = 1;
  let quoted = false;
  for (const character of line) {
    if (character === '"') quoted = !quoted;
    else if (character === separator && !quoted) count++;
  }
  return count;
}

const SYMBOL =
  /^\s*(?:export\s+)?(?:default\s+)?(?:async\s+)?(?:pub(?:\([a-z]+\))?\s+)?(?:abstract\s+)?(function|class|interface|enum|def|fn|func|struct|impl|trait|type|const fn)\s+\*?([A-Za-z_$][\w$]{0,60})/;

function code(probe: string): Synopsis | null {
  const symbols: string[] = [];
  let marks = 0;
  const rows = lines(probe);
  for (const line of rows) {
    const symbol = SYMBOL.exec(line);
    if (symbol !== null && /[({:<=;]|\bextends\b/.test(line)) symbols.push(`${symbol[1]} ${symbol[2]}`);
    if (/^\s*(import\s|from\s\S+\simport|#include\s*[<"]|package\s[\w.]+;|using\s[\w.]+;|#!\/)/.test(line)) marks++;
  }
  if (symbols.length === 0 && !(marks >= 2 || rows[0]?.startsWith('#!'))) return null;
  if (symbols.length + marks < 2) return null;
  return { type: 'code', lines: [symbols.length === 0 ? 'a script' : `symbols: ${listed(symbols)}`] };
}

/** Logs have colons as well: most lines must be keys, list items or comments, and none may begin with a time or a level. */
function yaml(probe: string): Synopsis | null {
  const rows = lines(probe).filter((line) => line.trim() !== '');
  const sample = rows.slice(0, 200);
  if (sample.length < 3) return null;
  if (sample.some((line) => /^\s*\[?(\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b/.test(line)))
    return null;
  const fits = sample.filter((line) => /^\s*(#|---|- |-$|[A-Za-z_"'][\w ."'/-]{0,60}:(\s|$))/.test(line));
  const top = sample.flatMap((line) => {
    const match = /^([A-Za-z_"'][\w."'/-]{0,60}):(\s|$)/.exec(line);
    return match === null ? [] : [match[1] ?? ''];
  });
  if (fits.length < sample.length * 0.9 || top.length === 0) return null;
  return { type: 'yaml', lines: [`top-level keys: ${listed(unique(top))}`] };
}

function plain(text: string): Synopsis {
  return { type: 'text', lines: [`about ${countLines(text)} lines`] };
}

const lines = (text: string): string[] => text.split('\n');
const unique = (items: readonly string[]): string[] => [...new Set(items)];

function countLines(text: string): number {
  let count = 1;
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) count++;
  return count;
}
