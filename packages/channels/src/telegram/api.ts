import { ChannelError } from '../adapter.ts';

const OFFICIAL = 'https://api.telegram.org';
/** Characters of an answer that are read: a hundred updates need less. */
const MOST_ANSWER = 8 * 1024 * 1024;
/** Milliseconds that a call may take; a long poll has its own. */
const CALL_MS = 30_000;
const TRANSFER_MS = 120_000;

export interface TelegramOptions {
  readonly token: string;
  /** null = Telegram's own. */
  readonly apiUrl: string | null;
}

interface Answer {
  readonly ok?: boolean;
  readonly result?: unknown;
  readonly description?: string;
  readonly parameters?: { readonly retry_after?: number };
}

/** The Bot API over `fetch`. Its addresses hold the token: no error carries one, nor a cause that might. */
export class TelegramApi {
  readonly #base: string;
  readonly #token: string;

  constructor({ token, apiUrl }: TelegramOptions) {
    if (!/^\d{1,20}:[A-Za-z0-9_-]{10,100}$/.test(token))
      throw new ChannelError(
        'unauthorized',
        'The bot token is none: it looks like 123456:ABC-DEF… Copy it from @BotFather again.',
      );
    this.#token = token;
    this.#base = (apiUrl ?? OFFICIAL).replace(/\/+$/, '');
  }

  async call(method: string, body: object, signal: AbortSignal, timeoutMs = CALL_MS): Promise<unknown> {
    return await this.#ask(method, signal, timeoutMs, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }

  /** A form with one file, which is streamed. */
  async upload(
    method: string,
    fields: Readonly<Record<string, string>>,
    file: { readonly field: string; readonly name: string; readonly source: AsyncIterable<Uint8Array> },
    signal: AbortSignal,
  ): Promise<unknown> {
    const boundary = `reindeer-${crypto.randomUUID()}`;
    const init: RequestInit & { readonly duplex: 'half' } = {
      method: 'POST',
      headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
      body: ReadableStream.from(formOf(boundary, fields, file)),
      duplex: 'half',
    };
    return await this.#ask(method, signal, TRANSFER_MS, init);
  }

  async download(path: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const safe = path
      .split('/')
      .filter((part) => part !== '' && part !== '.' && part !== '..')
      .map(encodeURIComponent)
      .join('/');
    const over = AbortSignal.any([signal, AbortSignal.timeout(TRANSFER_MS)]);
    let response: Response;
    try {
      response = await fetch(`${this.#base}/file/bot${this.#token}/${safe}`, { signal: over, redirect: 'error' });
    } catch (error) {
      throw reached(signal, error);
    }
    if (!response.ok || response.body === null) {
      await response.body?.cancel().catch(() => {});
      throw new ChannelError(
        response.status >= 500 || response.status === 429 ? 'unreachable' : 'refused',
        `Telegram did not give the file (${response.status}).`,
      );
    }
    return chunks(response.body, signal);
  }

  async #ask(method: string, signal: AbortSignal, timeoutMs: number, init: RequestInit): Promise<unknown> {
    const over = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    let response: Response;
    let text: string;
    try {
      response = await fetch(`${this.#base}/bot${this.#token}/${method}`, { ...init, signal: over, redirect: 'error' });
      text = await bounded(response);
    } catch (error) {
      throw reached(signal, error);
    }
    let answer: Answer | null;
    try {
      answer = JSON.parse(text) as Answer | null;
    } catch {
      answer = null;
    }
    if (response.ok && answer?.ok === true) return answer.result;
    throw this.#failure(method, response.status, answer);
  }

  #failure(method: string, status: number, answer: Answer | null): ChannelError {
    const said = (answer?.description ?? '').replaceAll(this.#token, '…').slice(0, 300);
    const message = `Telegram answered ${status} to ${method}${said === '' ? '' : `: ${said}`}.`;
    if (status === 401 || (status === 404 && answer !== null))
      return new ChannelError(
        'unauthorized',
        'Telegram does not know the bot token. Copy it from @BotFather again, and enter it in Settings → Channels or config.yaml.',
      );
    if (status === 429) {
      const seconds = answer?.parameters?.retry_after;
      return new ChannelError('limited', message, typeof seconds === 'number' && seconds > 0 ? seconds * 1_000 : 5_000);
    }
    if (status === 409)
      return new ChannelError(
        'taken',
        'Another program listens with the same bot token, or a webhook is set. Stop it, or make a bot of its own for Reindeer.',
      );
    if (status >= 500 || answer === null) return new ChannelError('unreachable', message);
    return new ChannelError('refused', message);
  }
}

/** The caller's own abort stays what it is; everything else is told without what `fetch` says, which may name the address. */
function reached(signal: AbortSignal, error: unknown): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof ChannelError) return error;
  const cause = (error as { readonly cause?: { readonly code?: unknown } } | null)?.cause?.code;
  const code = typeof cause === 'string' && /^[A-Z0-9_]{1,40}$/.test(cause) ? ` (${cause})` : '';
  const name = error instanceof Error && error.name === 'TimeoutError' ? 'in time' : `at all${code}`;
  return new ChannelError('unreachable', `Telegram did not answer ${name}.`);
}

async function bounded(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > MOST_ANSWER) throw new ChannelError('unreachable', 'Telegram answered more than can be right.');
  }
  return text + decoder.decode();
}

async function* chunks(body: ReadableStream<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of body) yield chunk;
  } catch (error) {
    throw reached(signal, error);
  }
}

async function* formOf(
  boundary: string,
  fields: Readonly<Record<string, string>>,
  file: { readonly field: string; readonly name: string; readonly source: AsyncIterable<Uint8Array> },
): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  for (const [name, value] of Object.entries(fields))
    yield encoder.encode(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`);
  // As browsers write names: a quote or a line break would end the header.
  const safe = file.name.replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
  yield encoder.encode(
    `--${boundary}\r\nContent-Disposition: form-data; name="${file.field}"; filename="${safe}"\r\nContent-Type: application/octet-stream\r\n\r\n`,
  );
  yield* file.source;
  yield encoder.encode(`\r\n--${boundary}--\r\n`);
}
