/**
 * The pending writes of one task in one row. Which channels they are to is the same from step to step, so it is taken out as a
 * *shape* that is stored once per thread: JSON `[[index, channel, kind], …]`. The row holds a line `shape number, length, length, …`
 * and the values one after another. Kind 0 is a stored value (`content.ts`), kind 1 is bytes in base64. Lengths count UTF-16 units.
 */
export interface StoredWrite {
  readonly index: number;
  readonly channel: string;
  readonly kind: 0 | 1;
  readonly value: string;
}

type Shape = readonly (readonly [index: number, channel: string, kind: 0 | 1])[];

/** Text of the shape of writes, which must be stored. */
export function shapeOfWrites(writes: readonly StoredWrite[]): string {
  return JSON.stringify(writes.map(({ index, channel, kind }) => [index, channel, kind]) satisfies Shape);
}

export function encodeWrites(writes: readonly StoredWrite[], shapeNumber: number): string {
  const line = [shapeNumber, ...writes.map(({ value }) => value.length)].join(' ');
  return `${line}\n${writes.map(({ value }) => value).join('')}`;
}

/** The number of the shape that a row needs. */
export function shapeOfBody(body: string): number {
  return Number.parseInt(body, 10);
}

/** @param shape text of the shape whose number is `shapeOfBody(body)` */
export function decodeWrites(body: string, shape: string): StoredWrite[] {
  const end = body.indexOf('\n');
  const [, ...lengths] = body.slice(0, end).split(' ').map(Number);
  let at = end + 1;
  return (JSON.parse(shape) as Shape).map(([index, channel, kind], place) => {
    const value = body.slice(at, at + (lengths[place] ?? 0));
    at += value.length;
    return { index, channel, kind, value };
  });
}

/** Adds writes to those that stand: control writes (index < 0) and `replace` take the place of earlier ones, others never do. */
export function mergeWrites(
  standing: readonly StoredWrite[],
  added: readonly StoredWrite[],
  replace: boolean,
): StoredWrite[] {
  const merged = new Map(standing.map((write) => [write.index, write]));
  for (const write of added) if (replace || write.index < 0 || !merged.has(write.index)) merged.set(write.index, write);
  return [...merged.values()].sort((a, b) => a.index - b.index);
}

/**
 * LangGraph's task paths in short: `<node` for `~__pregel_pull, node`, `>3` for `~__pregel_push, 0000000003`. Others stay, behind
 * `:` when they look like one of these.
 */
export function shortPath(path: string): string {
  if (/^[<>:]/.test(path)) return `:${path}`;
  const short = path
    .replace(/^~__pregel_pull, /, '<')
    .replace(/^~__pregel_push, /, '>')
    .replaceAll(/(?<=[>,] ?)0{0,9}(\d{1,10})(?=,|$)/g, '$1');
  return longPath(short) === path ? short : path;
}

export function longPath(short: string): string {
  if (short.startsWith(':')) return short.slice(1);
  if (short.startsWith('<')) return `~__pregel_pull, ${short.slice(1)}`;
  if (!short.startsWith('>')) return short;
  return `~__pregel_push, ${short.slice(1).replaceAll(/(?<=^|, )\d{1,10}(?=,|$)/g, (digits) => digits.padStart(10, '0'))}`;
}
