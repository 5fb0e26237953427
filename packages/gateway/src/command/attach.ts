import { type ErrorCode, ReindeerError, type StreamEvent } from '@reindeer/protocol';

export interface Server {
  /** `http://127.0.0.1:2026`, without a slash at the end. */
  readonly url: string;
  readonly token: string | null;
}

const headersOf = (server: Server): Record<string, string> => ({
  'content-type': 'application/json',
  ...(server.token === null ? {} : { authorization: `Bearer ${server.token}` }),
});

/** A stop of many sandboxes takes its time, in milliseconds. */
const ANSWER_WITHIN_MS = 300_000;

/** Largest event that is accepted, in characters. */
const MAX_EVENT = 64 * 1024 * 1024;

/**
 * Starts a run on a server and yields its events until the end.
 *
 * @throws ReindeerError with what the server said, or that nothing answers there
 */
export async function* streamFromServer(
  server: Server,
  path: string,
  body: unknown,
  signal: AbortSignal,
): AsyncGenerator<StreamEvent> {
  let response: Response;
  try {
    response = await fetch(`${server.url}${path}`, {
      method: 'POST',
      headers: headersOf(server),
      body: JSON.stringify(body),
      signal,
    });
  } catch (cause) {
    if (signal.aborted) return;
    throw new ReindeerError(
      'not_found',
      `No server answers at ${server.url}. Start one with reindeer serve, or leave out --attach.`,
      { cause },
    );
  }
  if (!response.ok || response.body === null) throw await refusalOf(response);
  yield* readEvents(response.body, signal);
}

/** An answer of any length: text that is read as it comes. Throws as `streamFromServer`. */
export async function openOnServer(
  server: Server,
  path: string,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array>> {
  let response: Response;
  try {
    response = await fetch(`${server.url}${path}`, { headers: headersOf(server), signal });
  } catch (cause) {
    throw new ReindeerError('not_found', `No server answers at ${server.url}. Start one with reindeer serve.`, {
      cause,
      retryable: true,
    });
  }
  if (!response.ok || response.body === null) throw await refusalOf(response);
  return response.body;
}

/** What a refusal means for the exit code: only wrong words are wrong usage. */
const CODES: ReadonlyMap<number, ErrorCode> = new Map([
  [401, 'unauthorized'],
  [404, 'not_found'],
  [409, 'conflict'],
  [501, 'not_implemented'],
  [503, 'over_capacity'],
]);

async function refusalOf(response: Response): Promise<ReindeerError> {
  const text = await response.text().catch(() => '');
  let detail = text.slice(0, 500);
  try {
    const parsed = (JSON.parse(text) as { detail?: unknown }).detail;
    detail = typeof parsed === 'string' ? parsed : JSON.stringify(parsed);
  } catch {
    // Not ours; shown as it is.
  }
  return new ReindeerError(
    CODES.get(response.status) ?? 'bad_request',
    `The server answered ${response.status}: ${detail}`,
    { retryable: response.status === 503 },
  );
}

/** Parses server-sent events. A stream that is cut before its `end` throws. */
export async function* readEvents(body: ReadableStream<Uint8Array>, signal: AbortSignal): AsyncGenerator<StreamEvent> {
  const decoder = new TextDecoder();
  let buffer = '';
  let ended = false;
  try {
    for await (const chunk of body) {
      // A pair of line ends may be cut between two chunks: it is joined first.
      buffer = (buffer + decoder.decode(chunk, { stream: true })).replaceAll('\r\n', '\n');
      if (buffer.length > MAX_EVENT)
        throw new ReindeerError('too_large', 'The server sent an event that is too large.');
      for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
        const event = parseEvent(buffer.slice(0, end));
        buffer = buffer.slice(end + 2);
        if (event === null) continue;
        ended ||= event.event === 'end';
        yield event;
      }
    }
  } catch (cause) {
    if (signal.aborted) return;
    if (ReindeerError.is(cause)) throw cause;
    throw new ReindeerError('store_unavailable', 'The connection to the server was cut. The run may go on there.', {
      cause,
      retryable: true,
    });
  }
  if (!ended && !signal.aborted)
    throw new ReindeerError('store_unavailable', 'The server ended the stream early. The run may go on there.', {
      retryable: true,
    });
}

function parseEvent(block: string): StreamEvent | null {
  let id: string | null = null;
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, '');
    switch (line.slice(0, colon)) {
      case 'id':
        id = value;
        break;
      case 'event':
        event = value;
        break;
      case 'data':
        data.push(value);
        break;
    }
  }
  return data.length === 0 ? null : { id, event, data: data.join('\n') };
}

/** The answer of a server to a question that takes no stream. @throws ReindeerError with what it said, or that nothing answers there */
export async function askServer(server: Server, method: string, path: string, body?: unknown): Promise<unknown> {
  let response: Response;
  try {
    response = await fetch(`${server.url}${path}`, {
      method,
      headers: headersOf(server),
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (cause) {
    throw new ReindeerError(
      'not_found',
      `No server answers at ${server.url}. Start one with reindeer serve, or say where it is with --host and --port.`,
      { cause },
    );
  }
  if (!response.ok) throw await refusalOf(response);
  return await response.json();
}

/** Cancels a run on a server and waits until nothing of it acts any more. */
export async function cancelOnServer(server: Server, threadId: string, runId: string): Promise<void> {
  await fetch(`${server.url}/api/threads/${threadId}/runs/${runId}/cancel?wait=1&action=interrupt`, {
    method: 'POST',
    headers: headersOf(server),
    signal: AbortSignal.timeout(60_000),
  });
}
