import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import type { Connection } from './connection.ts';
import { closed, refusalOf } from './errors.ts';
import { type Frame, MODES, type RunEvent, RunEvents, type Usage, type Values } from './events.ts';
import { fieldsOf } from './fields.ts';
import { type RunOptions, settle } from './options.ts';

/** What a run begins with: words, messages in LangChain's form, or the answer to what an earlier run has asked. */
export type RunInput = string | readonly JsonObject[] | { readonly resume: unknown };

export interface StreamOptions {
  /** The conversation; it is begun if there is none of this name. Absent = a new one. */
  readonly threadId?: string | undefined;
  readonly overrides?: RunOptions | undefined;
  readonly metadata?: JsonObject | undefined;
  /** Ends the run. */
  readonly signal?: AbortSignal | undefined;
}

const ASSISTANT = 'lead_agent';
/** How long the end of a run that nobody reads is waited for. */
const END_WITHIN_MS = 60_000;

/**
 * Starts a run and tells what it does until its end. The run goes on when the connection is cut, and so does the stream. Whoever stops reading, or
 * aborts the signal, ends the run: nothing of it acts any more when this has returned.
 *
 * @throws ReindeerError with what the server refused; `run_failed` behind the `end` event of a run that failed; `aborted` after the signal
 */
export async function* streamRun(
  connection: Connection,
  defaults: RunOptions,
  input: RunInput,
  { threadId = crypto.randomUUID(), overrides = {}, metadata, signal }: StreamOptions = {},
): AsyncGenerator<RunEvent, void, undefined> {
  if (connection.over) throw closed();
  const { context, recursionLimit } = settle(defaults, overrides);
  const events = new RunEvents();
  let runId: string | null = null;
  let ended = false;
  const source = connection.sdk.runs.stream(threadId, ASSISTANT, {
    ...(isAnswer(input) ? { command: { resume: input.resume } } : { input: { messages: messagesOf(input) } }),
    context,
    config: { recursion_limit: recursionLimit },
    ...(metadata === undefined ? {} : { metadata }),
    streamMode: [...MODES],
    onDisconnect: 'continue',
    streamResumable: true,
    ifNotExists: 'create',
    signal: connection.signal(signal),
    onRunCreated: (run) => {
      runId = run.run_id;
    },
  });
  try {
    for await (const frame of translated(connection, source as AsyncIterable<Frame>, signal)) {
      ended ||= frame.event === 'end';
      yield* events.accept(frame);
    }
  } finally {
    if (!ended && runId !== null && !connection.over) await endRun(connection, threadId, runId);
  }
  if (!ended && (connection.over || signal?.aborted === true)) throw connection.fault(signal?.reason, signal);
  if (!ended)
    throw new ReindeerError('store_unavailable', 'The server ended the stream early. The run may go on there.');
  if (events.failure !== null)
    throw new ReindeerError('run_failed', events.failure.message, {
      detail: { run_id: runId, thread_id: threadId, error: events.failure.name },
    });
}

/** The frames, with faults in our words. Errors of the SDK carry the status and the text of the answer. */
async function* translated(
  connection: Connection,
  source: AsyncIterable<Frame>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Frame> {
  try {
    yield* source;
  } catch (error) {
    const { status, text, response } = fieldsOf(error);
    if (typeof status !== 'number') throw connection.fault(error, signal);
    throw refusalOf(status, String(text), response instanceof Response ? response.headers : new Headers());
  }
}

const isAnswer = (input: RunInput): input is { readonly resume: unknown } =>
  typeof input === 'object' && !Array.isArray(input);

const messagesOf = (input: string | readonly JsonObject[]): readonly JsonObject[] =>
  typeof input === 'string' ? [{ type: 'human', content: input }] : input;

/** Waits until nothing of the run acts any more. It may have ended by itself, and the server may be gone: then there is nothing to end. */
async function endRun(connection: Connection, threadId: string, runId: string): Promise<void> {
  const path = `/threads/${encodeURIComponent(threadId)}/runs/${encodeURIComponent(runId)}/cancel`;
  const signal = AbortSignal.timeout(END_WITHIN_MS);
  await connection.send('POST', path, { query: { wait: 1, action: 'interrupt' }, signal }).catch(() => {});
}

/** What a run has come to. */
export interface Answer extends Values {
  /** The last words of the model. */
  readonly text: string;
  readonly threadId: string;
  readonly runId: string;
  readonly status: string;
  readonly usage: Usage;
}

/** Runs to the end. Pieces of text are gathered by message and joined once. @throws as the stream does */
export async function answerOf(events: AsyncIterable<RunEvent>): Promise<Answer> {
  const pieces = new Map<string, string[]>();
  let values: Values = { title: null, messages: [], artifacts: [], interrupts: [] };
  let end: Pick<Answer, 'threadId' | 'runId' | 'status' | 'usage'> | null = null;
  for await (const { type, data } of events) {
    if (type === 'values') values = data;
    else if (type === 'end')
      end = { threadId: data.thread_id, runId: data.run_id, status: data.status, usage: data.usage };
    else if (type === 'messages-tuple') {
      if (data.type === 'remove') pieces.delete(data.id);
      else if (data.type === 'ai' && data.content !== '') {
        const known = pieces.get(data.id);
        if (known === undefined) pieces.set(data.id, [data.content]);
        else known.push(data.content);
      }
    }
  }
  if (end === null) throw new ReindeerError('store_unavailable', 'The stream had no end.');
  const text = [...pieces.values()].at(-1)?.join('') ?? '';
  return { text, ...values, ...end };
}
