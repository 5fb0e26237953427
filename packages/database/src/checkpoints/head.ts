/**
 * A checkpoint without its values: format, time, the version of each channel, and which versions each node has seen. Its names are the
 * same from step to step, so they are taken out as a *shape* that is stored once per thread; what remains are the versions,
 * each once. Anything that does not fit is kept as it came.
 *
 * Stored: `[shape number, time in ms, [versions], [places]]`, where `places` gives an index into `versions` for each entry of
 * the shape, in order. Kept as it came: the JSON object.
 */

/** Names of a checkpoint in order: `[format, [channel, …], [[node, [channel, …]], …]]`. */
type Shape = readonly [number, readonly string[], readonly (readonly [string, readonly string[]])[]];
type Version = string | number;
type Head = readonly [number, number, readonly Version[], readonly number[]];

interface Checkpoint {
  readonly v: number;
  readonly id: string;
  readonly ts: string;
  readonly channel_versions: Readonly<Record<string, Version>>;
  readonly versions_seen: Readonly<Record<string, Readonly<Record<string, Version>>>>;
}

export type EncodedHead =
  | { readonly whole: string }
  /** `shape` must be stored; `head(number)` is the text then. */
  | { readonly shape: string; readonly head: (shapeNumber: number) => string };

/** @param checkpoint JSON of a checkpoint without values */
export function encodeHead(checkpoint: string, checkpointId: string): EncodedHead {
  const parsed = JSON.parse(checkpoint) as Partial<Checkpoint>;
  const { v, id, ts, channel_versions: versionsNow, versions_seen: seen } = parsed;
  const time = typeof ts === 'string' ? Date.parse(ts) : Number.NaN;
  const fits =
    typeof v === 'number' &&
    id === checkpointId &&
    versionsNow !== undefined &&
    seen !== undefined &&
    Object.keys(parsed).length === 5 &&
    Number.isFinite(time) &&
    new Date(time).toISOString() === ts;
  if (!fits) return { whole: checkpoint };
  const versions: Version[] = [];
  const known = new Map<Version, number>();
  const places: number[] = [];
  const place = (version: Version): void => {
    let at = known.get(version);
    if (at === undefined) {
      at = versions.push(version) - 1;
      known.set(version, at);
    }
    places.push(at);
  };
  for (const version of Object.values(versionsNow)) place(version);
  const nodes = Object.entries(seen).map(([node, channels]): [string, string[]] => {
    for (const version of Object.values(channels)) place(version);
    return [node, Object.keys(channels)];
  });
  const shape: Shape = [v, Object.keys(versionsNow), nodes];
  return {
    shape: JSON.stringify(shape),
    head: (shapeNumber) => JSON.stringify([shapeNumber, time, versions, places] satisfies Head),
  };
}

/** The number of the shape that a stored head needs, or null when it needs none. */
export function shapeOf(head: string): number | null {
  return head.startsWith('[') ? Number.parseInt(head.slice(1), 10) : null;
}

/** The checkpoint's JSON. @param shape text of the shape whose number is `shapeOf(head)`; '' when that is null */
export function decodeHead(head: string, shape: string, checkpointId: string): string {
  if (shapeOf(head) === null) return head;
  const { v, ts, channels, nodes } = unfold(head, shape);
  const seen = Object.fromEntries(nodes.map(([node, versions]) => [node, Object.fromEntries(versions)]));
  const checkpoint: Checkpoint = {
    v,
    id: checkpointId,
    ts,
    channel_versions: Object.fromEntries(channels),
    versions_seen: seen,
  };
  return JSON.stringify(checkpoint);
}

/** Version of each channel; which rows hold the values of a checkpoint. */
export function channelVersions(head: string, shape: string): (readonly [name: string, version: string])[] {
  const entries =
    shapeOf(head) === null
      ? Object.entries((JSON.parse(head) as Partial<Checkpoint>).channel_versions ?? {})
      : unfold(head, shape).channels;
  return entries.map(([name, version]) => [name, String(version)]);
}

function unfold(head: string, shape: string) {
  const [, time, versions, places] = JSON.parse(head) as Head;
  const [v, names, nodes] = JSON.parse(shape) as Shape;
  let next = 0;
  const take = (name: string): [string, Version] => {
    const version = versions[places[next] ?? 0] ?? '';
    next += 1;
    return [name, version];
  };
  const channels = names.map(take);
  return {
    v,
    ts: new Date(time).toISOString(),
    channels,
    nodes: nodes.map(([node, seen]): [string, [string, Version][]] => [node, seen.map(take)]),
  };
}

/** Metadata as LangGraph writes it at every step: `<source> <step>`. Anything else stays JSON. */
const STEP = /^\{"source":"([a-z]+)","step":(-?\d{1,9}),"parents":\{\}\}$/;

export function encodeMetadata(json: string): string {
  return json.replace(STEP, '$1 $2');
}

export function decodeMetadata(stored: string): string {
  if (stored.startsWith('{')) return stored;
  const [source, step] = stored.split(' ');
  return `{"source":"${source}","step":${step},"parents":{}}`;
}
