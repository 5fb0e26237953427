import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { JsonObject, Run, StreamItem } from '@reindeer/protocol';
import { errorAnswer } from './errors.ts';
import { SECURITY_HEADERS } from './guards.ts';
import type { HttpParts } from './parts.ts';
import type { RequestContext } from './route.ts';
import { disconnectSignal, writeEvents } from './sse.ts';
import { runView, stateView } from './views.ts';

/** The SDK reads the run id from here with a greedy pattern: nothing may follow it. */
export const contentLocation = (run: Run) => `/api/threads/${run.threadId}/runs/${run.runId}`;

/**
 * Streams a run to the client, from a position on, until its end or until the client leaves. The headers leave at once, so that
 * the client knows the run's id before its first event. A client that leaves is reported to the runtime, which knows the
 * run's disconnect rule.
 */
export async function streamRun(
  c: RequestContext,
  parts: HttpParts,
  run: Run,
  options: {
    readonly lastEventId: string | null;
    readonly modes: readonly string[] | null;
    readonly cancelOnDisconnect: boolean;
  },
): Promise<Response> {
  const { outgoing } = c.env;
  const key = { runId: run.runId, threadId: run.threadId, userId: c.get('userId') };
  const client = disconnectSignal(outgoing);
  outgoing.writeHead(200, {
    ...SECURITY_HEADERS,
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
    'content-location': contentLocation(run),
    // Relative to the SDK's apiUrl: it reconnects there after a cut, with its last event id.
    location: `/threads/${run.threadId}/runs/${run.runId}/stream`,
  });
  outgoing.flushHeaders();
  try {
    const source = parts.runs.stream({
      ...key,
      lastEventId: options.lastEventId,
      modes: options.modes,
      heartbeatMs: parts.heartbeatMs,
      signal: client.signal,
    });
    const writing = { clock: parts.surroundings.clock, stalledMs: parts.stalledMs };
    // A source that fails in the middle ends as the SDK expects.
    const end = await writeEvents(outgoing, source, writing).catch((error: unknown) =>
      writeEvents(outgoing, errorEvents(error, parts), writing),
    );
    if (end === 'disconnected') await left(parts, key, options.cancelOnDisconnect);
  } catch (error) {
    // The headers are gone; the connection is all that can still say it.
    parts.surroundings.logger.error('A stream broke', { runId: run.runId, error: String(error) });
    outgoing.destroy();
  } finally {
    client.dispose();
  }
  return RESPONSE_ALREADY_SENT;
}

async function left(
  parts: HttpParts,
  key: { runId: string; threadId: string; userId: string },
  cancel: boolean,
): Promise<void> {
  try {
    if (cancel) await parts.runs.cancel({ ...key, action: 'interrupt', wait: false });
    await parts.runs.disconnected({ runId: key.runId, threadId: key.threadId });
  } catch (error) {
    // Nobody is left to tell; a run that should have been cancelled goes on to its end.
    parts.surroundings.logger.warn('The disconnect rule could not be applied', {
      runId: key.runId,
      error: String(error),
    });
  }
}

async function* errorEvents(error: unknown, parts: HttpParts): AsyncGenerator<StreamItem> {
  const { body } = errorAnswer(error);
  parts.surroundings.logger.error('Reading a stream failed', { error: String(error) });
  yield {
    id: null,
    event: 'error',
    data: JSON.stringify({ error: body.code, name: body.code, message: body.detail }),
  };
  yield { id: null, event: 'end', data: 'null' };
}

/**
 * Answers the final values of a run as JSON. The headers leave at once and a space follows with every heartbeat: clients and proxies
 * give up on an answer that is silent for minutes, and JSON may begin with spaces.
 */
export async function answerWhenDone(
  c: RequestContext,
  parts: HttpParts,
  run: Run,
  options: { readonly cancelOnDisconnect: boolean },
): Promise<Response> {
  const { outgoing } = c.env;
  const { clock } = parts.surroundings;
  const key = { runId: run.runId, threadId: run.threadId, userId: c.get('userId') };
  const client = disconnectSignal(outgoing);
  const done = new AbortController();
  outgoing.writeHead(200, {
    ...SECURITY_HEADERS,
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    'content-location': contentLocation(run),
  });
  outgoing.flushHeaders();
  const beat = (async () => {
    while (!done.signal.aborted) {
      await clock.sleep(parts.heartbeatMs, done.signal);
      outgoing.write(' ');
    }
  })().catch(() => {});
  let answer: JsonObject | null = null;
  try {
    answer = await finalValues(parts, key, client.signal);
  } catch (error) {
    if (!client.signal.aborted) {
      const { body } = errorAnswer(error);
      parts.surroundings.logger.error('Waiting for a run failed', { runId: run.runId, error: String(error) });
      answer = { __error__: { error: body.code, message: String(body.detail) } };
    }
  }
  done.abort();
  await beat;
  if (client.signal.aborted || answer === null) {
    client.dispose();
    await left(parts, key, options.cancelOnDisconnect);
    outgoing.destroy();
    return RESPONSE_ALREADY_SENT;
  }
  client.dispose();
  outgoing.end(JSON.stringify(answer));
  return RESPONSE_ALREADY_SENT;
}

async function finalValues(
  parts: HttpParts,
  key: { runId: string; threadId: string; userId: string },
  signal: AbortSignal,
): Promise<JsonObject | null> {
  const run = await parts.runs.join({ ...key, signal });
  if (run === null)
    return signal.aborted ? null : { __error__: { error: 'not_found', message: 'The run was deleted.' } };
  const state = await parts.threads.state({
    threadId: key.threadId,
    userId: key.userId,
    checkpointId: null,
    subgraphs: false,
  });
  const values = (state === null ? {} : stateView(state, ['values']).values) as JsonObject;
  const interrupts = state?.interrupts ?? [];
  const asked = interrupts.length === 0 ? {} : { __interrupt__: [...interrupts] };
  if (run.status === 'success' || (run.status === 'interrupted' && run.error === null)) return { ...values, ...asked };
  const { status, error } = runView(run);
  return {
    ...values,
    ...asked,
    status,
    error,
    __error__: { error: run.status, message: run.error ?? `The run ended with status ${run.status}.` },
  };
}
