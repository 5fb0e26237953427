import type { IncomingMessage } from 'node:http';
import { type Clock, type ExecResult, ReindeerError } from '@reindeer/protocol';
import { MirrorClient } from '../mirror/client.ts';
import { OutputBuffer } from '../process/output.ts';
import { jsonLines } from './lines.ts';
import { at } from './listing.ts';
import { jsonAnswer, type ServerCall, type ServerTransport, timeLimit } from './transport.ts';

export interface ServerCommand {
  readonly command: string;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly outputBytes: number;
  readonly outputEndBytes: number;
  readonly fileBytes: number;
  readonly signal: AbortSignal;
  readonly onOutput?: (text: string) => void;
}

/** One line of a stream: the kept output of a command, all of it escaped, and some room. */
const LINE_ROOM_BYTES = 1024 * 1024;
/** What is no output: a container may be hostile, and reading its answer takes time of ours. */
const CONTROL_BYTES = 1024 * 1024;
/** Output of the public image, as one answer. */
const OUTPUT_BYTES = 64 * 1024 * 1024;
/** What the server may take to end a command whose time is over, and to say so. */
const END_MS = 15_000;
const POLL_SECONDS = 20;
const CONTROL_MS = 10_000;

/**
 * Speaks to the server of one sandbox: ours, or the public all-in-one image. Which one it is, the first answer tells. A rejection means
 * that nothing is known about the command's outcome.
 */
export class ServerClient {
  readonly #transport: ServerTransport;
  readonly #clock: Clock;
  readonly #uuid: () => string;
  #streams: boolean | null = null;
  /** For a sandbox that does not share the thread's folders. */
  readonly files: MirrorClient;

  constructor(transport: ServerTransport, clock: Clock, uuid: () => string) {
    this.#transport = transport;
    this.#clock = clock;
    this.#uuid = uuid;
    this.files = new MirrorClient(transport, clock);
  }

  /** Does the server answer at all? Also learns what it can. Rejects when it does not within `withinMs`. */
  async hello(withinMs: number, signal?: AbortSignal): Promise<void> {
    const limit = timeLimit(this.#clock, withinMs, signal);
    try {
      const body = await this.#json({ method: 'GET', path: '/v1/sandbox', signal: limit.signal });
      this.#streams = typeof at(body, 'reindeer') === 'number';
    } finally {
      limit.done();
    }
  }

  /** Runs one command to its end. */
  async run(input: ServerCommand): Promise<ExecResult> {
    const limit = timeLimit(this.#clock, input.timeoutMs + END_MS);
    try {
      if (this.#streams === null) await this.hello(CONTROL_MS, limit.signal);
      return this.#streams === true ? await this.#stream(input, limit.signal) : await this.#poll(input, limit.signal);
    } finally {
      limit.done();
    }
  }

  /** Lets go of connections. Idempotent, never throws. */
  close(): Promise<void> {
    return this.#transport.close();
  }

  /**
   * Our server: output as it comes, on one connection per command. An abort asks the server to end the command and waits for its result;
   * only a server that does not answer is hung up on, which ends the command too, if the server still lives.
   */
  async #stream(input: ServerCommand, limit: AbortSignal): Promise<ExecResult> {
    const began = this.#clock.monotonic();
    const session = this.#uuid();
    const hangUp = new AbortController();
    const patience = new AbortController();
    const onAbort = () => {
      this.#post('/v1/bash/kill', { session_id: session, signal: 'SIGKILL' }).catch(() => hangUp.abort());
      this.#clock.sleep(END_MS, patience.signal).then(
        () => hangUp.abort(),
        () => {},
      );
    };
    // Kept for the case that no result comes any more.
    const output = new OutputBuffer(input.outputBytes, input.onOutput);
    try {
      const response = await this.#transport.call({
        method: 'POST',
        path: '/v1/bash/exec',
        accept: 'application/x-ndjson',
        body: {
          session_id: session,
          command: input.command,
          exec_dir: input.cwd,
          env: input.env,
          hard_timeout: input.timeoutMs / 1000,
          output_bytes: input.outputBytes,
          output_end_bytes: input.outputEndBytes,
          file_bytes: input.fileBytes,
        },
        signal: AbortSignal.any([limit, hangUp.signal]),
        // From here on the server knows the session.
        onSent: () => {
          if (input.signal.aborted) onAbort();
          else input.signal.addEventListener('abort', onAbort, { once: true });
        },
      });
      if (response.statusCode !== 200) throw await refusal(response);
      for await (const line of jsonLines(response, input.outputBytes * 6 + LINE_ROOM_BYTES)) {
        const text = at(line, 'output');
        if (typeof text === 'string') output.push(Buffer.from(text));
        const result = at(line, 'result');
        if (result !== undefined) return checkedResult(result, this.#clock.monotonic() - began);
      }
    } catch (error) {
      if (!hangUp.signal.aborted) throw error;
      const durationMs = this.#clock.monotonic() - began;
      return { ...output.finish(), exitCode: null, ended: 'aborted', durationMs };
    } finally {
      patience.abort();
      input.signal.removeEventListener('abort', onAbort);
    }
    throw new ReindeerError('sandbox_unavailable', 'The sandbox ended while the command ran; its outcome is unknown.', {
      retryable: true,
    });
  }

  /** The public image: starts the command in a session of its own, reads its output by offsets, and kills it when its time is over. */
  async #poll(input: ServerCommand, limit: AbortSignal): Promise<ExecResult> {
    const began = this.#clock.monotonic();
    const output = new OutputBuffer(input.outputBytes, input.onOutput);
    const started = await this.#data({
      method: 'POST',
      path: '/v1/bash/exec',
      body: {
        // Both streams in one, so that their order is kept; for this shell alone.
        command: `exec 2>&1\n${input.command}`,
        exec_dir: input.cwd,
        env: input.env,
        async_mode: true,
        hard_timeout: input.timeoutMs / 1000,
      },
      signal: limit,
    });
    const session = at(started, 'session_id');
    if (typeof session !== 'string') throw unreadable();
    const end = () => this.#end(session);
    const over = (part: Pick<ExecResult, 'ended' | 'limit' | 'exitCode'>): ExecResult => ({
      ...part,
      ...output.finish(),
      durationMs: this.#clock.monotonic() - began,
    });
    try {
      for (let offset = 0; ; ) {
        const body = { session_id: session, offset, wait: true, wait_timeout: POLL_SECONDS };
        const signal = AbortSignal.any([limit, input.signal]);
        const call = { method: 'POST', path: '/v1/bash/output', body, signal } as const;
        const view = await this.#data(call, OUTPUT_BYTES);
        const text = at(view, 'stdout');
        if (typeof text === 'string' && text !== '') output.push(Buffer.from(text));
        const next = at(view, 'offset');
        if (typeof next === 'number' && next > offset) offset = next;
        if (output.total > input.outputEndBytes) {
          await end();
          return over({ ended: 'limit', limit: 'output', exitCode: null });
        }
        const status = at(at(view, 'command'), 'status');
        const code = at(at(view, 'command'), 'exit_code');
        if (status === 'timed_out' || status === 'hard_timeout') return over({ ended: 'timeout', exitCode: null });
        if (status !== 'running' && status !== 'pending')
          return over({ ended: 'exit', exitCode: typeof code === 'number' ? code : null });
        if (this.#clock.monotonic() - began > input.timeoutMs + END_MS / 2) {
          await end();
          return over({ ended: 'timeout', exitCode: null });
        }
      }
    } catch (error) {
      await end().catch(() => {});
      if (!input.signal.aborted) throw error;
      return over({ ended: 'aborted', exitCode: null });
    }
  }

  /** Kills a command of the public image and waits, so long, until it has ended: that it was asked to is no end. */
  async #end(session: string): Promise<void> {
    await this.#post('/v1/bash/kill', { session_id: session, signal: 'SIGKILL' });
    const limit = timeLimit(this.#clock, END_MS);
    try {
      for (let running = true; running; ) {
        const body = { session_id: session, offset: Number.MAX_SAFE_INTEGER, wait: true, wait_timeout: 1 };
        const call = { method: 'POST', path: '/v1/bash/output', body, signal: limit.signal } as const;
        const status = at(at(await this.#data(call, OUTPUT_BYTES), 'command'), 'status');
        running = status === 'running' || status === 'pending';
      }
    } catch {
      // It cannot be asked, or does not end: the caller hears how its command was ended all the same.
    } finally {
      limit.done();
    }
  }

  async #post(path: string, body: unknown): Promise<void> {
    const limit = timeLimit(this.#clock, CONTROL_MS);
    try {
      await this.#data({ method: 'POST', path, body, signal: limit.signal });
    } finally {
      limit.done();
    }
  }

  async #data(call: ServerCall, maxBytes = CONTROL_BYTES): Promise<unknown> {
    return at(await this.#json(call, maxBytes), 'data');
  }

  async #json(call: ServerCall, maxBytes = CONTROL_BYTES): Promise<unknown> {
    const response = await this.#transport.call(call);
    if (response.statusCode !== 200) throw await refusal(response, call.path);
    return jsonAnswer(response, maxBytes);
  }
}

async function refusal(response: IncomingMessage, path = ''): Promise<ReindeerError> {
  const body = await jsonAnswer(response, LINE_ROOM_BYTES).catch(() => null);
  const message = at(body, 'message');
  const text = typeof message === 'string' ? message.slice(0, 300) : `status ${response.statusCode}`;
  const code = at(body, 'code');
  if (code === 'not_found' || code === 'bad_request' || code === 'too_large' || code === 'over_capacity')
    return new ReindeerError(code, text);
  if (response.statusCode === 404 && path.startsWith('/v1/bash/'))
    return new ReindeerError(
      'sandbox_unavailable',
      'This sandbox image cannot run commands as Reindeer needs it (no /v1/bash/exec). Use all-in-one-sandbox 1.9.3 or newer, or the image in images/sandbox.',
    );
  return new ReindeerError('sandbox_unavailable', `The sandbox refused: ${text}`);
}

function unreadable(): ReindeerError {
  return new ReindeerError('sandbox_unavailable', 'The sandbox gave an answer that cannot be read.');
}

const ENDS = ['exit', 'timeout', 'aborted', 'limit'] as const;

/** What a container says of itself is data: every field is checked. */
function checkedResult(result: unknown, durationMs: number): ExecResult {
  const output = at(result, 'output');
  const exitCode = at(result, 'exitCode');
  const ended = ENDS.find((one) => one === at(result, 'ended'));
  const limit = at(result, 'limit');
  const truncated = at(result, 'truncatedBytes');
  if (typeof output !== 'string' || ended === undefined) throw unreadable();
  return {
    output,
    exitCode: typeof exitCode === 'number' ? exitCode : null,
    ended,
    ...(typeof limit === 'string' ? { limit: limit.slice(0, 40) } : {}),
    truncatedBytes: typeof truncated === 'number' ? truncated : 0,
    durationMs,
  };
}
