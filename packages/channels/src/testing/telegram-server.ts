import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export const TOKEN = '42:AAbbCCddEEff-Secret_1';

export interface Call {
  readonly method: string;
  readonly body: Readonly<Record<string, unknown>>;
  /** Of a form, as it came. */
  readonly raw: string;
}

/** The Bot API, as far as we use it: keeps updates until they are confirmed, and answers as it is told. */
export class TelegramServer {
  readonly calls: Call[] = [];
  readonly files = new Map<string, string>();
  /** Status and body instead of the usual answer; null = as usual. */
  answer: (call: Call) => { readonly status: number; readonly body: unknown } | null = () => null;
  updates: { readonly update_id: number; readonly message: object }[] = [];
  /** Where it listens. */
  url = '';
  #messages = 100;
  #poll: (() => void) | null = null;
  readonly #server = createServer((request, response) => void this.#serve(request, response));

  async start(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }
  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
  push(message: object): void {
    const last = this.updates.at(-1)?.update_id ?? 9_000;
    this.updates.push({ update_id: last + 1, message });
    this.#poll?.();
  }
  ofMethod(method: string): Call[] {
    return this.calls.filter((call) => call.method === method);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const raw = Buffer.concat(chunks).toString();
    const path = request.url ?? '';
    const file = path.startsWith(`/file/bot${TOKEN}/`) ? path.slice(`/file/bot${TOKEN}/`.length) : null;
    if (file !== null) {
      const content = this.files.get(decodeURIComponent(file));
      response.writeHead(content === undefined ? 404 : 200).end(content ?? 'no');
      return;
    }
    const method = path.slice(path.lastIndexOf('/') + 1);
    const isJson = request.headers['content-type'] === 'application/json';
    const call: Call = { method, body: isJson ? JSON.parse(raw) : {}, raw };
    this.calls.push(call);
    const reply = (status: number, body: unknown) =>
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (!path.startsWith(`/bot${TOKEN}/`)) {
      reply(401, { ok: false, error_code: 401, description: 'Unauthorized' });
      return;
    }
    const told = this.answer(call);
    if (told !== null) {
      reply(told.status, told.body);
      return;
    }
    reply(200, { ok: true, result: await this.#result(call, response) });
  }

  async #result({ method, body }: Call, response: ServerResponse): Promise<unknown> {
    switch (method) {
      case 'getMe':
        return { id: 42, is_bot: true, username: 'Our_Bot' };
      case 'getUpdates': {
        const { offset } = body;
        if (typeof offset === 'number') this.updates = this.updates.filter((one) => one.update_id >= offset);
        if (this.updates.length === 0)
          await new Promise<void>((resolve) => {
            this.#poll = resolve;
            response.once('close', resolve);
          });
        return this.updates;
      }
      case 'getFile':
        return { file_id: body.file_id, file_path: `documents/${String(body.file_id)}` };
      default:
        this.#messages += 1;
        return { message_id: this.#messages };
    }
  }
}
