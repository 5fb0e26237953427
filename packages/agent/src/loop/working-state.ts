import { type BaseMessage, RemoveMessage } from '@langchain/core/messages';
import { Command } from '@langchain/langgraph';
import { type Random, ReindeerError } from '@reindeer/protocol';
import { type Channels, JUMP } from './channels.ts';
import { foldMessages, messageList, REMOVE_ALL, withId } from './messages.ts';
import type { State } from './middleware.ts';

/**
 * The state as one node sees it while it runs several hooks: what the checkpoint holds plus the writes so far. Bad
 * writes are refused here, with the name of the writer, because behind this point a reducer may not throw. Values that
 * are still the very object of the state are no writes: hooks that return the whole state do not emit it again.
 */
export class WorkingState {
  values: State;
  readonly #channels: Channels;
  readonly #random: Random;
  readonly #initial: readonly BaseMessage[];
  readonly #messages: BaseMessage[] = [];
  readonly #lent = new Set<BaseMessage>();
  readonly #last = new Map<string, unknown>();
  readonly #more: [string, unknown][] = [];

  constructor(channels: Channels, values: Record<string, unknown>, random: Random) {
    this.#channels = channels;
    this.#random = random;
    this.#initial = (values.messages as BaseMessage[] | undefined) ?? [];
    this.values = { ...values, messages: (values.messages as BaseMessage[] | undefined) ?? [] };
  }

  /** Applies what a hook, tool or model returned. Throws `validation_failed`, naming `source`, for a write that no reducer could take. */
  apply(update: unknown, source: string): void {
    if (update === undefined || update === null) return;
    if (typeof update !== 'object' || Array.isArray(update))
      throw new ReindeerError(
        'validation_failed',
        `${source} returned ${typeof update}; return an object of state keys.`,
      );
    for (const [key, value] of Object.entries(update)) {
      if (key === 'jumpTo' || key === 'structuredResponse' || value === undefined) continue;
      if (value === this.values[key]) continue;
      if (key === 'messages') this.#write(messageList(value, source), source);
      else this.#set(key, value, source);
    }
  }

  /**
   * Shows the hooks a copy of a stored message. Hooks may change it in place, as LangChain's approval does; only a hook
   * that returns it writes it. The stored object itself never changes, or the saver would not notice.
   */
  lend(position: number, copy: BaseMessage): void {
    const messages = [...this.values.messages];
    messages[position] = copy;
    this.values = { ...this.values, messages };
    this.#lent.add(copy);
  }

  jump(target: unknown): void {
    this.#last.set(JUMP, target);
  }

  /** The node's return value. */
  toUpdate(): unknown {
    const update: Record<string, unknown> = Object.fromEntries(this.#last);
    if (this.#messages.length > 0) update.messages = this.#messages;
    if (this.#more.length === 0) return update;
    // A channel with a reducer may be written several times in one node; LangGraph takes that as several commands.
    return [new Command({ update }), ...this.#more.map(([key, value]) => new Command({ update: { [key]: value } }))];
  }

  #set(key: string, value: unknown, source: string): void {
    const channel = this.#channels[key];
    if (channel === undefined)
      throw new ReindeerError(
        'validation_failed',
        `${source} wrote "${key}", which is no channel of this agent's state.`,
        {
          detail: { field: key },
        },
      );
    const before = this.values[key] ?? channel.initial?.();
    this.values = { ...this.values, [key]: before === undefined ? value : channel.reduce(before, value) };
    if (channel.lastWrite || !this.#last.has(key)) this.#last.set(key, value);
    else this.#more.push([key, value]);
  }

  #write(messages: BaseMessage[], source: string): void {
    const known = this.values.messages;
    const writes: BaseMessage[] = [];
    // After a removal the same object may have to come back: then nothing is left out as unchanged.
    const removes = messages.some((message) => RemoveMessage.isInstance(message));
    for (const message of messages) {
      if (RemoveMessage.isInstance(message)) {
        const { id } = message;
        const exists =
          id === REMOVE_ALL || known.some((other) => other.id === id) || writes.some((other) => other.id === id);
        if (!exists)
          throw new ReindeerError('validation_failed', `${source} removes message "${id}", which does not exist.`, {
            detail: { messageId: id },
          });
      } else if (!removes && !this.#lent.has(message) && known.includes(message)) continue;
      else withId(message, this.#random);
      writes.push(message);
    }
    if (writes.length === 0) return;
    this.values = { ...this.values, messages: foldMessages(known, writes) };
    for (const message of writes) this.#record(message);
  }

  /**
   * A second version of a message that this node wrote takes the place of the first, and one that is taken back again was never
   * written: the step then reports what became of it once.
   */
  #record(message: BaseMessage): void {
    const position = this.#messages.findLastIndex(
      (other) => other.id === message.id && !RemoveMessage.isInstance(other),
    );
    const removed = this.#messages.findLastIndex((other) => RemoveMessage.isInstance(other));
    const own = position >= 0 && position > removed;
    if (RemoveMessage.isInstance(message)) {
      if (own && !this.#initial.some((other) => other.id === message.id)) this.#messages.splice(position, 1);
      else this.#messages.push(message);
    } else if (own) this.#messages[position] = message;
    else this.#messages.push(message);
  }
}
