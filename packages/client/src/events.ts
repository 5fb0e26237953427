import type { JsonObject } from '@reindeer/protocol';
import { type Fields, fieldsOf, isWritten, listOf, textOf } from './fields.ts';

/** Tokens of all messages of a run, each message counted once. What sub-agents used is in the run (`sdk.runs.get`). */
export interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly total_tokens: number;
}

/**
 * News of one message. `ai`: text to append to what came under this id, or its tool calls, or what else is known of it; never two of them at once.
 * `tool`: a result, whole. `remove`: what came under this id does not count any more; it may come anew.
 */
export type MessageNews =
  | {
      readonly type: 'ai';
      readonly id: string;
      readonly content: string;
      readonly tool_calls?: readonly JsonObject[];
      readonly additional_kwargs?: JsonObject;
    }
  | ({ readonly type: 'tool'; readonly id: string } & JsonObject)
  | { readonly type: 'remove'; readonly id: string };

/** The state of the thread after a step. */
export interface Values {
  readonly title: string | null;
  readonly messages: readonly JsonObject[];
  readonly artifacts: readonly string[];
  /** What a person is asked before the run goes on; empty = nothing. */
  readonly interrupts: readonly JsonObject[];
}

export interface RunEnd {
  readonly run_id: string;
  readonly thread_id: string;
  /** `success` (also when it asks a person: then the last values have `interrupts`), `interrupted` (it was cancelled), `error` or `timeout`. */
  readonly status: string;
  readonly usage: Usage;
}

/** In this order: `metadata` once, then the others as they come, `end` once. */
export type RunEvent =
  | { readonly type: 'metadata'; readonly data: { readonly run_id: string; readonly thread_id: string } }
  | { readonly type: 'messages-tuple'; readonly data: MessageNews }
  | { readonly type: 'values'; readonly data: Values }
  | { readonly type: 'custom'; readonly data: unknown }
  | { readonly type: 'end'; readonly data: RunEnd };

/** A server-sent event of a run, parsed. */
export interface Frame {
  readonly event: string;
  readonly data: unknown;
}

/** The modes that a `RunEvents` needs. `updates` bring each message whole, also where a slow reader is spared states in between. */
export const MODES = ['values', 'messages-tuple', 'updates', 'custom'] as const;

/** What was told of one message of the model. */
interface Told {
  calls: boolean;
  extra: string;
  usage: Usage;
}

const NO_USAGE: Usage = { input_tokens: 0, output_tokens: 0, total_tokens: 0 };
const NO_VALUES: Values = { title: null, messages: [], artifacts: [], interrupts: [] };

/**
 * Turns the frames of one run into its events. Each message is told once: text that came in pieces is not repeated when the message is whole or when a
 * state holds it, a result that comes again is left out, and tokens count once per message, by its last word. Messages of earlier runs are
 * only in the states.
 */
export class RunEvents {
  readonly #told = new Map<string, Told>();
  /** Results of tools, by id, as they were told. */
  readonly #results = new Map<string, string>();
  #ids = { run_id: '', thread_id: '' };
  #values = NO_VALUES;
  /** Why the run failed; null = it did not. */
  failure: { readonly name: string; readonly message: string } | null = null;

  accept({ event, data }: Frame): readonly RunEvent[] {
    switch (event) {
      case 'metadata': {
        const { run_id = '', thread_id = '' } = fieldsOf(data);
        if (this.#ids.run_id !== '') return [];
        this.#ids = { run_id: String(run_id), thread_id: String(thread_id) };
        return [{ type: 'metadata', data: this.#ids }];
      }
      case 'messages':
        return this.#message(fieldsOf(listOf(data)[0])).map(tuple);
      case 'updates':
        return Object.values(fieldsOf(data))
          .flatMap((update) => listOf(fieldsOf(update).messages))
          .flatMap((message) => this.#whole(fieldsOf(message)))
          .map(tuple);
      case 'values':
        return [{ type: 'values', data: this.#state(fieldsOf(data)) }];
      case 'custom':
        return [{ type: 'custom', data }];
      case 'error': {
        const { error, message } = fieldsOf(data);
        this.failure = { name: String(error ?? ''), message: String(message ?? 'The run failed.') };
        return [];
      }
      case 'end': {
        const status = String(fieldsOf(data).status ?? 'error');
        return [{ type: 'end', data: { ...this.#ids, status, usage: this.#usage() } }];
      }
      default:
        return [];
    }
  }

  #message(message: Fields): MessageNews[] {
    const { type, id } = message;
    if (!isWritten(id)) return [];
    switch (type) {
      case 'remove': {
        const known = this.#told.delete(id) || this.#results.delete(id);
        return known ? [{ type: 'remove', id }] : [];
      }
      case 'tool':
        return this.#result(message, id);
      case 'AIMessageChunk': {
        const told = this.#begin(id);
        told.usage = sum(told.usage, usageOf(message));
        return this.#text(id, message);
      }
      case 'ai': {
        // Whole at once. When pieces of it came before, only the rest of what there is to know.
        if (this.#told.has(id)) return this.#whole(message);
        this.#begin(id);
        return [...this.#text(id, message), ...this.#whole(message)];
      }
      default:
        return [];
    }
  }

  #begin(id: string): Told {
    const told = this.#told.get(id) ?? { calls: false, extra: '{}', usage: NO_USAGE };
    this.#told.set(id, told);
    return told;
  }

  #text(id: string, message: Fields): MessageNews[] {
    const content = textOf(message.content);
    return content === '' ? [] : [{ type: 'ai', id, content }];
  }

  /** What is known of a message only when it is whole: its tool calls, what came with it, its tokens. */
  #whole(message: Fields): MessageNews[] {
    const { id } = message;
    const told = isWritten(id) ? this.#told.get(id) : undefined;
    if (message.type !== 'ai' || !isWritten(id) || told === undefined) return [];
    const news: MessageNews[] = [];
    const calls = listOf(message.tool_calls) as readonly JsonObject[];
    if (calls.length > 0 && !told.calls) {
      told.calls = true;
      news.push({ type: 'ai', id, content: '', tool_calls: calls });
    }
    const extra = fieldsOf(message.additional_kwargs) as JsonObject;
    const text = JSON.stringify(extra);
    if (text !== told.extra && text !== '{}') news.push({ type: 'ai', id, content: '', additional_kwargs: extra });
    told.extra = text;
    if (message.usage_metadata != null) told.usage = usageOf(message);
    return news;
  }

  #result(message: Fields, id: string): MessageNews[] {
    const text = JSON.stringify(message);
    if (this.#results.get(id) === text) return [];
    this.#results.set(id, text);
    return [{ ...(message as JsonObject), type: 'tool', id }];
  }

  #state(state: Fields): Values {
    const interrupts = listOf(state.__interrupt__) as readonly JsonObject[];
    // A frame of interrupts alone: the state stays as it was.
    if (interrupts.length > 0 && state.messages === undefined) this.#values = { ...this.#values, interrupts };
    else
      this.#values = {
        title: typeof state.title === 'string' ? state.title : null,
        messages: listOf(state.messages) as readonly JsonObject[],
        artifacts: listOf(state.artifacts).filter((path) => typeof path === 'string'),
        interrupts,
      };
    return this.#values;
  }

  #usage(): Usage {
    let total = NO_USAGE;
    for (const { usage } of this.#told.values()) total = sum(total, usage);
    return total;
  }
}

const tuple = (data: MessageNews): RunEvent => ({ type: 'messages-tuple', data });

function usageOf(message: Fields): Usage {
  const { input_tokens, output_tokens, total_tokens } = fieldsOf(message.usage_metadata);
  const input = Number(input_tokens ?? 0);
  const output = Number(output_tokens ?? 0);
  return { input_tokens: input, output_tokens: output, total_tokens: Number(total_tokens ?? input + output) };
}

const sum = (a: Usage, b: Usage): Usage => ({
  input_tokens: a.input_tokens + b.input_tokens,
  output_tokens: a.output_tokens + b.output_tokens,
  total_tokens: a.total_tokens + b.total_tokens,
});
