import type { ServerResponse } from 'node:http';
import type { Clock } from '@reindeer/protocol';
import type { Encoder } from './encoder.ts';
import type { Piece } from './pieces.ts';
import type { Fault, Turn } from './script.ts';

interface SendInput {
  readonly response: ServerResponse;
  readonly turn: Turn;
  readonly stream: boolean;
  readonly encoder: Encoder;
  readonly pieces: readonly Piece[];
  readonly errorBody: (status: number, message: string) => unknown;
  readonly clock: Clock;
  /** Fires when the server stops: ends every wait. */
  readonly closing: AbortSignal;
  readonly note: (change: { status?: number; sent?: number; clientLeft?: boolean; done?: boolean }) => void;
}

const STREAM_HEADERS = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache' } as const;

/** Sends one turn with its delays and its fault. Resolves when nothing more will be sent, also when the client left. */
export async function sendTurn(input: SendInput): Promise<void> {
  const { response, note } = input;
  const gone = new AbortController();
  response.once('close', () => {
    if (!response.writableFinished && !input.closing.aborted) note({ clientLeft: true });
    gone.abort(new Error('The client left.'));
  });
  const signal = AbortSignal.any([gone.signal, input.closing]);
  try {
    const fault = input.turn.fault;
    if (fault !== undefined && sendEarlyFault(input, fault)) return;
    if (input.stream) await sendStream(input, fault, signal);
    else await sendWhole(input, fault, signal);
  } catch (error) {
    // The client or the server went away in the middle: nobody is left to be told.
    if (!signal.aborted) throw error;
  } finally {
    note({ done: true });
  }
}

/** Faults that replace the whole answer. */
function sendEarlyFault(input: SendInput, fault: Fault): boolean {
  const { response, note } = input;
  const send = (status: number, headers: Readonly<Record<string, string>>, body: string) => {
    note({ status });
    response.writeHead(status, headers);
    response.end(body);
    return true;
  };
  const json = { 'content-type': 'application/json' };
  switch (fault.kind) {
    case 'status': {
      const retry = fault.retryAfter === undefined ? {} : { 'retry-after': String(fault.retryAfter) };
      const message = fault.message ?? `Scripted failure with status ${fault.status}.`;
      return send(
        fault.status,
        { ...json, ...retry, ...fault.headers },
        JSON.stringify(input.errorBody(fault.status, message)),
      );
    }
    case 'error-body':
      return send(200, json, JSON.stringify(input.errorBody(500, fault.message ?? 'Scripted error body.')));
    case 'malformed-body':
      return input.stream ? send(200, STREAM_HEADERS, 'data: {"choices": [\n\n') : send(200, json, '{"choices": [');
    case 'wrong-content-type':
      return send(
        200,
        { 'content-type': 'text/html' },
        '<!doctype html><title>Sign in</title><p>Please sign in to the network.',
      );
    default:
      return false;
  }
}

async function sendStream(input: SendInput, fault: Fault | undefined, signal: AbortSignal): Promise<void> {
  const { response, encoder, note } = input;
  const stopAfter = fault !== undefined && 'afterPieces' in fault ? fault.afterPieces : null;
  if (stopAfter !== null && stopAfter <= 0) return failMidway(input, fault, signal);
  note({ status: 200 });
  response.writeHead(200, STREAM_HEADERS);
  await write(response, encoder.open(), signal);
  let sent = 0;
  for (const piece of input.pieces) {
    if (stopAfter !== null && sent >= stopAfter) break;
    await pause(input, signal);
    const text = encoder.piece(piece);
    if (text !== '') await write(response, text, signal);
    sent += 1;
    note({ sent });
  }
  if (stopAfter !== null) return failMidway(input, fault, signal);
  await finish(response, encoder.close(), signal);
}

async function sendWhole(input: SendInput, fault: Fault | undefined, signal: AbortSignal): Promise<void> {
  const { response, encoder, note } = input;
  for (const _ of input.pieces) await pause(input, signal);
  const body = Buffer.from(JSON.stringify(encoder.whole()));
  if (fault !== undefined && 'afterPieces' in fault) {
    if (fault.kind === 'error-event') {
      note({ status: 500 });
      response.writeHead(500, { 'content-type': 'application/json' });
      return finish(response, JSON.stringify(input.errorBody(500, fault.message ?? 'Scripted error.')), signal);
    }
    if (fault.afterPieces > 0) {
      // The promised length is longer than what comes.
      note({ status: 200 });
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
      await write(response, body.subarray(0, Math.floor(body.length / 2)), signal);
    }
    return failMidway(input, fault, signal);
  }
  note({ status: 200, sent: input.pieces.length });
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
  await finish(response, body, signal);
}

async function failMidway(input: SendInput, fault: Fault | undefined, signal: AbortSignal): Promise<void> {
  const { response } = input;
  if (fault?.kind === 'cut' || (fault?.kind === 'quiet-end' && !response.headersSent)) {
    response.socket?.destroy();
  } else if (fault?.kind === 'quiet-end') {
    await finish(response, '', signal);
  } else if (fault?.kind === 'hang') {
    await whenAborted(signal);
  } else if (fault?.kind === 'error-event') {
    if (!response.headersSent) {
      input.note({ status: 200 });
      response.writeHead(200, STREAM_HEADERS);
    }
    await finish(response, input.encoder.errorEvent(fault.message ?? 'Scripted error in the stream.'), signal);
  }
}

async function pause(input: SendInput, signal: AbortSignal): Promise<void> {
  const delay = input.turn.delayMs ?? 0;
  if (delay > 0) await input.clock.sleep(delay, signal);
}

function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Resolves when the bytes have left for the socket, so that a slow reader slows the script down. */
function write(response: ServerResponse, data: string | Buffer, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const leave = () => reject(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    response.write(data, (error) => {
      signal.removeEventListener('abort', leave);
      if (error) reject(error);
      else resolve();
    });
  });
}

function finish(response: ServerResponse, data: string | Buffer, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    response.end(data, () => {
      signal.removeEventListener('abort', leave);
      resolve();
    });
  });
}
