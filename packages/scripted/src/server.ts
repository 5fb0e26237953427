import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Clock, JsonObject } from '@reindeer/protocol';
import { anthropicEncoder, anthropicError } from './anthropic/reply.ts';
import { readAnthropicRequest } from './anthropic/request.ts';
import { checkTexts, parseObject, Refusal } from './checking.ts';
import { systemClock } from './clock.ts';
import type { Encoder } from './encoder.ts';
import { Journal, type JournalEntry } from './journal.ts';
import { openAiEncoder, openAiError } from './openai/reply.ts';
import { readOpenAiRequest } from './openai/request.ts';
import { type Answer, answer } from './pieces.ts';
import { AttemptCounter, conversationKey, type Script, ScriptMiss, type ScriptRequest, type Turn } from './script.ts';
import { sendTurn } from './send.ts';

export interface ScriptedProviderOptions {
  readonly script: Script;
  /** Default 0: any free port. It listens on 127.0.0.1 only. */
  readonly port?: number;
  /** When set, requests without this key get 401. */
  readonly apiKey?: string;
  /** Names that `/v1/models` lists; default `scripted`. A request may name any model. */
  readonly models?: readonly string[];
  /** Refuse a chat completions request that does not bring `reasoning_content` back, as some thinking providers do. */
  readonly demandReasoning?: boolean;
  readonly clock?: Clock;
  /** Largest request body in bytes; default 64 MiB. */
  readonly maxBodyBytes?: number;
}

export interface ScriptedProvider {
  readonly port: number;
  /** For an Anthropic client: `baseURL` is this. */
  readonly url: string;
  /** For an OpenAI client: `baseURL` is this. */
  readonly openAiUrl: string;
  requests(): readonly JournalEntry[];
  /** Resolves with the first request, past or future, that matches; rejects when the provider closes. */
  waitFor(matches: (entry: JournalEntry) => boolean): Promise<JournalEntry>;
  /** Cuts what is open and stops listening. Idempotent. */
  close(): Promise<void>;
}

/** The header by which a client names its caller; see `ScriptRequest.caller`. */
const CALLER_HEADER = 'x-scripted-caller';
export const DEFAULT_CALLER = 'default';

/**
 * Starts a local server that speaks OpenAI chat completions and Anthropic messages, answers from a script, and refuses every
 * request that the real services would refuse.
 */
export async function startScriptedProvider(options: ScriptedProviderOptions): Promise<ScriptedProvider> {
  const clock = options.clock ?? systemClock();
  const journal = new Journal();
  const attempts = new AttemptCounter();
  const closing = new AbortController();

  const server = createServer((request, response) => {
    // A fault of this server itself must not take the process down; the client sees a cut connection.
    handle(request, response).catch(() => response.destroy());
  });

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://localhost');
    const isAnthropic = request.headers['anthropic-version'] !== undefined || url.pathname.endsWith('/messages');
    const fail = (status: number, message: string, field: string | null = null) =>
      sendJson(response, status, isAnthropic ? anthropicError(status, message) : openAiError(status, message, field));

    if (options.apiKey !== undefined && !hasKey(request, options.apiKey)) {
      return fail(401, 'Incorrect API key provided.');
    }
    if (request.method === 'GET' && /^\/v1\/models(\/|$)/.test(url.pathname)) {
      return sendModels(
        response,
        url.pathname.slice('/v1/models'.length + 1),
        isAnthropic,
        options.models ?? ['scripted'],
      );
    }
    const api =
      url.pathname === '/v1/chat/completions' ? 'openai' : url.pathname === '/v1/messages' ? 'anthropic' : null;
    if (api === null) return fail(404, `There is no ${url.pathname} here.`);
    if (request.method !== 'POST') return fail(405, 'Only POST is supported here.');

    const text = await readBody(request, options.maxBodyBytes ?? 64 * 1024 * 1024);
    if (text === null) return fail(413, 'The request body is too large.');
    const body = parseObject(text);
    if (body === null) return fail(400, 'The request body is no JSON object.');
    await reply({ api, request, response, body, bytes: text.length, fail });
  }

  async function reply(input: {
    api: 'openai' | 'anthropic';
    request: IncomingMessage;
    response: ServerResponse;
    body: JsonObject;
    bytes: number;
    fail: (status: number, message: string, field?: string | null) => void;
  }): Promise<void> {
    const { api, body, response } = input;
    const header = input.request.headers[CALLER_HEADER];
    const caller = typeof header === 'string' && header !== '' ? header : DEFAULT_CALLER;
    let parsed: ReturnType<typeof read>;
    try {
      if (api === 'anthropic' && input.request.headers['anthropic-version'] === undefined) {
        throw new Refusal('anthropic-version: header is required', 'anthropic-version');
      }
      checkTexts(body);
      parsed = read(api, body, options.demandReasoning ?? false);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const entry = journal.add({ api, caller, attempt: 1, body, refused: error.message }, input.bytes);
      Object.assign(entry, { status: 400, done: true });
      input.fail(400, error.message, error.field);
      journal.changed(entry);
      return;
    }

    const attempt = attempts.next(conversationKey({ caller, messages: parsed.messages }));
    const request: ScriptRequest = {
      caller,
      model: parsed.model,
      messages: parsed.messages,
      tools: parsed.tools,
      attempt,
    };
    const entry = journal.add({ api, caller, attempt, body, refused: null }, input.bytes);
    let turn: Turn;
    try {
      turn = options.script(request);
    } catch (error) {
      // 400, so that no client retries what can never fit.
      const message = error instanceof Error ? error.message : String(error);
      Object.assign(entry, {
        status: 400,
        done: true,
        refused: error instanceof ScriptMiss ? message : `The script failed: ${message}`,
      });
      input.fail(400, entry.refused ?? message);
      journal.changed(entry);
      return;
    }
    const reply = answer(request, turn);
    await sendTurn({
      response,
      turn,
      stream: parsed.stream,
      encoder: parsed.encoder(reply, clock.now()),
      pieces: reply.pieces,
      errorBody: (status, message) =>
        api === 'anthropic' ? anthropicError(status, message) : openAiError(status, message, null),
      clock,
      closing: closing.signal,
      note: (change) => {
        Object.assign(entry, change);
        journal.changed(entry);
      },
    });
  }

  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(options.port ?? 0, '127.0.0.1', () => {
      server.off('error', reject);
      resolve();
    });
  });
  const { port } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  let closed: Promise<void> | null = null;

  return {
    port,
    url,
    openAiUrl: `${url}/v1`,
    requests: () => journal.entries(),
    waitFor: (matches) => journal.waitFor(matches),
    close() {
      closed ??= new Promise<void>((resolve) => {
        closing.abort(new Error('The scripted provider is closing.'));
        journal.close();
        server.close(() => resolve());
        server.closeAllConnections();
      });
      return closed;
    },
  };
}

function read(api: 'openai' | 'anthropic', body: JsonObject, demandReasoning: boolean) {
  if (api === 'openai') {
    const parsed = readOpenAiRequest(body, demandReasoning);
    const encoder = (reply: Answer, now: number): Encoder =>
      openAiEncoder({ answer: reply, model: parsed.model, now, includeUsage: parsed.includeUsage });
    return { ...parsed, encoder };
  }
  const parsed = readAnthropicRequest(body);
  const encoder = (reply: Answer, now: number): Encoder =>
    anthropicEncoder({ answer: reply, model: parsed.model, now, thinking: parsed.thinking });
  return { ...parsed, encoder };
}

function hasKey(request: IncomingMessage, key: string): boolean {
  return request.headers['x-api-key'] === key || request.headers.authorization === `Bearer ${key}`;
}

/** The body as text; null when it is larger than allowed. */
async function readBody(request: IncomingMessage, maxBytes: number): Promise<string | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}

function sendModels(response: ServerResponse, name: string, isAnthropic: boolean, models: readonly string[]): void {
  const entry = (id: string) =>
    isAnthropic
      ? { type: 'model', id, display_name: id, created_at: '2026-01-01T00:00:00Z' }
      : { id, object: 'model', created: 1_767_225_600, owned_by: 'scripted' };
  if (name === '') {
    const data = models.map(entry);
    sendJson(
      response,
      200,
      isAnthropic
        ? { data, has_more: false, first_id: models[0] ?? null, last_id: models.at(-1) ?? null }
        : { object: 'list', data },
    );
  } else if (models.includes(name)) {
    sendJson(response, 200, entry(name));
  } else {
    const message = `The model '${name}' does not exist.`;
    sendJson(response, 404, isAnthropic ? anthropicError(404, message) : openAiError(404, message, null));
  }
}
