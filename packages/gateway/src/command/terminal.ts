import type { StreamEvent } from '@reindeer/protocol';
import type { Host } from './host.ts';

type Fields = Readonly<Record<string, unknown>>;

const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** Text of a message's content: a text, or the text blocks of a list. */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return listOf(content)
    .map((block) =>
      typeof block === 'string' ? block : fieldsOf(block).type === 'text' ? String(fieldsOf(block).text ?? '') : '',
    )
    .join('');
}

/** Control characters of a terminal have no place in what a model or a tool says. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
const plain = (text: string) => text.replaceAll(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');

const oneLine = (text: string, length = 100) => {
  const line = plain(text).replaceAll(/\s+/g, ' ').trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
};

/** The modes that the terminal needs. */
export const TERMINAL_MODES = ['messages-tuple', 'updates', 'custom'];

/**
 * Shows a run's events in a terminal: the model's words on standard output as they come; tools, files, questions and faults on
 * standard error, one line each. With `json` every event is one line on standard output and nothing else is shown.
 */
export class Terminal {
  readonly #host: Host;
  readonly #json: boolean;
  /** Does the output stand in the middle of a line? */
  #open = false;
  readonly #shownCalls = new Set<string>();
  readonly #streamed = new Set<string>();
  failed: string | null = null;
  asks = false;
  /** Status of the run at its end; null before. */
  status: string | null = null;
  runId: string | null = null;
  threadId: string | null = null;

  constructor(host: Host, json: boolean) {
    this.#host = host;
    this.#json = json;
  }

  async accept(event: StreamEvent): Promise<void> {
    const data: unknown = JSON.parse(event.data);
    const [mode = ''] = event.event.split('|');
    if (this.#json) await this.#host.print(`${JSON.stringify({ id: event.id, event: event.event, data })}\n`);
    switch (mode) {
      case 'metadata':
        this.runId = String(fieldsOf(data).run_id ?? '') || null;
        this.threadId = String(fieldsOf(data).thread_id ?? '') || null;
        return;
      case 'messages': {
        const message = fieldsOf(listOf(data)[0]);
        // A whole message that did not come in pieces is told twice: here and as an update.
        if (message.type === 'ai' && this.#streamed.has(String(message.id ?? ''))) return;
        return await this.#message(message);
      }
      case 'updates':
        return await this.#update(fieldsOf(data));
      case 'custom':
        return await this.#custom(fieldsOf(data));
      case 'end':
        this.status = String(fieldsOf(data).status ?? '') || null;
        return;
      case 'error':
        this.failed = String(fieldsOf(data).message ?? 'The run failed.');
        return await this.#line(`✗ ${plain(this.failed)}`);
    }
  }

  /** Ends an open line. */
  async finish(): Promise<void> {
    if (this.#json || !this.#open) return;
    this.#open = false;
    await this.#host.print('\n');
  }

  async #message(message: Fields): Promise<void> {
    const { type } = message;
    if (type !== 'ai' && type !== 'AIMessageChunk') return;
    const text = textOf(message.content);
    // What stands in for the answer of a model that failed is the error of the run, which is told at its end.
    if (text === '' || fieldsOf(message.additional_kwargs).reindeer_error_fallback === true) return;
    this.#streamed.add(String(message.id ?? ''));
    if (this.#json) return;
    this.#open = !text.endsWith('\n');
    await this.#host.print(plain(text));
  }

  async #update(update: Fields): Promise<void> {
    if (update.__interrupt__ !== undefined) {
      this.asks = true;
      for (const interrupt of listOf(update.__interrupt__))
        await this.#line(`? ${oneLine(JSON.stringify(fieldsOf(interrupt).value ?? interrupt), 400)}`);
      return;
    }
    for (const values of Object.values(update)) {
      const { messages, artifacts } = fieldsOf(values);
      for (const message of listOf(messages)) await this.#told(fieldsOf(message));
      for (const path of listOf(artifacts)) await this.#line(`▤ ${plain(String(path))}`);
    }
  }

  async #told(message: Fields): Promise<void> {
    if (message.type === 'ai' && !this.#streamed.has(String(message.id ?? ''))) await this.#message(message);
    for (const call of listOf(message.tool_calls)) {
      const { id, name, args } = fieldsOf(call);
      const key = `${String(message.id)}:${String(id)}:${String(name)}`;
      if (this.#shownCalls.has(key)) continue;
      this.#shownCalls.add(key);
      await this.#line(`→ ${plain(String(name))} ${oneLine(JSON.stringify(args))}`);
    }
    if (message.type !== 'tool') return;
    const question = fieldsOf(fieldsOf(message.artifact).human_input).question;
    if (question !== undefined) {
      this.asks = true;
      await this.#line(`? ${textOf(message.content)}`);
      return;
    }
    await this.#line(
      `${message.status === 'error' ? '✗' : '✓'} ${plain(String(message.name ?? 'tool'))} ${oneLine(textOf(message.content))}`,
    );
  }

  async #custom(event: Fields): Promise<void> {
    if (event.type === 'llm_retry')
      await this.#line(`… ${oneLine(String(event.message ?? 'The model failed; trying again.'), 200)}`);
  }

  async #line(text: string): Promise<void> {
    if (this.#json) return;
    await this.finish();
    this.#host.say(`${text}\n`);
  }
}
