import { ReindeerError } from '@reindeer/protocol';
import { isMap, isScalar, LineCounter, type Node, parseDocument } from 'yaml';

/** A parsed file that still knows on which line each value stands. */
export interface ParsedYaml {
  readonly value: unknown;
  /** Line of a value by its path, from 1; the nearest parent's when it has none of its own. */
  lineOf(path: readonly PropertyKey[]): number;
}

/**
 * Parses YAML.
 *
 * @throws ReindeerError `configuration` with line and column when the text is not YAML
 */
export function readYaml(text: string, file: string): ParsedYaml {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true, prettyErrors: false });
  const [error] = document.errors;
  if (error !== undefined) {
    const { line, col } = lines.linePos(error.pos[0]);
    throw new ReindeerError(
      'configuration',
      `${file}, line ${line}, column ${col}: this is not valid YAML: ${error.message}. Correct the line; indentation matters.`,
    );
  }
  let value: unknown;
  try {
    // Aliases are bounded by the library, so that a small file cannot grow into gigabytes.
    value = document.toJS({ maxAliasCount: 100 });
  } catch (cause) {
    throw new ReindeerError('configuration', `${file} cannot be read: ${String(cause)}. Use fewer YAML aliases.`, {
      cause,
    });
  }
  const startOf = (node: unknown): number | null => {
    const range = (node as Node | null | undefined)?.range;
    return range == null ? null : lines.linePos(range[0]).line;
  };
  return {
    value,
    lineOf: (path) => {
      for (let length = path.length; length > 0; length -= 1) {
        const keys = path.slice(0, length).map((key) => (typeof key === 'symbol' ? String(key) : key));
        const parent: unknown = keys.length === 1 ? document.contents : document.getIn(keys.slice(0, -1), true);
        // The key's line, not the value's: a section begins on the line after its key.
        const pair = isMap(parent)
          ? parent.items.find((item) => isScalar(item.key) && String(item.key.value) === String(keys.at(-1)))
          : undefined;
        const line = startOf(pair?.key) ?? startOf(document.getIn(keys, true));
        if (line !== null) return line;
      }
      return 1;
    },
  };
}
