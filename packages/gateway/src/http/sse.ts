import type { ServerResponse } from 'node:http';
import type { Clock, StreamItem } from '@reindeer/protocol';

/** How a stream that was written to a client ended. */
export type StreamEnd =
  /** Everything was written. */
  | 'complete'
  /** The client went away, or took nothing for `stalledMs`. */
  | 'disconnected';

export interface EventWriterOptions {
  readonly clock: Clock;
  /** Milliseconds that a client may take nothing while data waits for it. */
  readonly stalledMs: number;
}

/** Text of one event. `data` is JSON without line breaks; should one come in anyway, each line is its own `data:` line. */
function formatEvent(item: StreamItem): string {
  if (item === 'heartbeat') return ': heartbeat\n\n';
  const data =
    item.data.includes('\n') || item.data.includes('\r') ? item.data.split(/\r\n|\r|\n/).join('\ndata: ') : item.data;
  return `${item.id === null ? '' : `id: ${item.id}\n`}event: ${item.event}\ndata: ${data}\n\n`;
}

/** Bytes of events that more than one client gets: the event is one object then. The first time there is only a note. */
const bytes = new WeakMap<object, Buffer | null>();

function bytesOf(item: StreamItem): string | Buffer {
  if (item === 'heartbeat') return formatEvent(item);
  const known = bytes.get(item);
  if (known instanceof Buffer) return known;
  const text = formatEvent(item);
  if (known === undefined) {
    bytes.set(item, null);
    return text;
  }
  const made = Buffer.from(text);
  bytes.set(item, made);
  return made;
}

/**
 * Writes events to a Node response, one at a time: the next is taken from the source only when the socket has room again (its
 * `drain`), so that a slow reader costs one event and the socket's buffer and never the run.
 *
 * States: writing → waiting for `drain` → writing … → complete; from both → disconnected on `close`, or when nothing drained for
 * `stalledMs`. The source is always told to stop (its `return`), also on failure.
 */
export async function writeEvents(
  response: ServerResponse,
  items: AsyncIterable<StreamItem>,
  options: EventWriterOptions,
): Promise<StreamEnd> {
  for await (const item of items) {
    if (response.destroyed || response.closed) return 'disconnected';
    if (!response.write(bytesOf(item)) && !(await drained(response, options))) return 'disconnected';
  }
  if (response.destroyed || response.closed) return 'disconnected';
  await new Promise<void>((resolve) => {
    response.once('close', resolve);
    response.end(resolve);
  });
  return 'complete';
}

async function drained(response: ServerResponse, options: EventWriterOptions): Promise<boolean> {
  if (!response.writableNeedDrain) return !response.destroyed;
  const patience = new AbortController();
  let settle: (value: boolean) => void = () => {};
  const outcome = new Promise<boolean>((resolve) => {
    settle = resolve;
  });
  const onDrain = () => settle(true);
  const onClose = () => settle(false);
  response.once('drain', onDrain);
  response.once('close', onClose);
  const timeout = options.clock.sleep(options.stalledMs, patience.signal).then(
    () => {
      response.destroy();
      settle(false);
    },
    () => {},
  );
  const result = await outcome;
  response.off('drain', onDrain);
  response.off('close', onClose);
  patience.abort();
  await timeout;
  return result;
}

/** A signal that fires when the client of `response` goes away before the end. `dispose` removes the listener. */
export function disconnectSignal(response: ServerResponse): { readonly signal: AbortSignal; dispose(): void } {
  const controller = new AbortController();
  const onClose = () => {
    if (!response.writableFinished) controller.abort(new Error('The client went away'));
  };
  response.once('close', onClose);
  if (response.destroyed) onClose();
  return { signal: controller.signal, dispose: () => response.off('close', onClose) };
}
