/**
 * The pending writes of one task in one row: a line of JSON `[[index, channel, kind, length], …]`, then the values one after
 * another. Kind 0 is a stored value (`content.ts`), kind 1 is bytes in base64. Lengths count UTF-16 units.
 */
export interface StoredWrite {
  readonly index: number;
  readonly channel: string;
  readonly kind: 0 | 1;
  readonly value: string;
}

export function encodeWrites(writes: readonly StoredWrite[]): string {
  const line = JSON.stringify(writes.map(({ index, channel, kind, value }) => [index, channel, kind, value.length]));
  return `${line}\n${writes.map(({ value }) => value).join('')}`;
}

export function decodeWrites(body: string): StoredWrite[] {
  const end = body.indexOf('\n');
  const line = JSON.parse(body.slice(0, end)) as [number, string, 0 | 1, number][];
  let at = end + 1;
  return line.map(([index, channel, kind, length]) => {
    const value = body.slice(at, at + length);
    at += length;
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
