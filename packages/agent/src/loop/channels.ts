import type { BaseMessage } from '@langchain/core/messages';
import {
  getInteropZodObjectShape,
  type InteropZodType,
  interopSafeParse,
  isInteropZodObject,
} from '@langchain/core/utils/types';
import { BinaryOperatorAggregate, ReducedValue, StateSchema } from '@langchain/langgraph';
import { schemaMetaRegistry } from '@langchain/langgraph/zod';
import type { Random } from '@reindeer/protocol';
import { foldMessages, toMessage, withId } from './messages.ts';

/** How one channel of the state merges a write. Reducers are total: a throwing reducer would poison the thread for ever. */
export interface Channel {
  reduce(left: unknown, right: unknown): unknown;
  /** Value before the first write; absent = the channel is empty. */
  readonly initial?: () => unknown;
  /** Only the last write of a step counts; then a node sends just that one. */
  readonly lastWrite: boolean;
  /** Does the reducer see the first write of a thread too? LangGraph stores it as it comes, whatever it is. */
  readonly reducesFirst?: boolean;
  /** Kept out of clients' sight: state keys, `values`, `updates`. */
  readonly hidden: boolean;
}
export type Channels = Readonly<Record<string, Channel>>;

/**
 * Where the next step goes, when it is not what the messages say. The node that acts on it clears it. (LangGraph's own channel for
 * values of one step is empty when an edge reads it, so it cannot carry this.)
 */
export const JUMP = '__jump';

export const lastWrite = (initial?: () => unknown, hidden = false): Channel => ({
  reduce: (_left, right) => right,
  ...(initial === undefined ? {} : { initial }),
  lastWrite: true,
  hidden,
});

/** A channel whose reducer may not throw: when it does, the write is dropped and the old value stays. */
export const reduced = (reduce: (left: unknown, right: unknown) => unknown, initial?: () => unknown): Channel => ({
  reduce(left, right) {
    try {
      const next = reduce(left, right);
      return next === undefined ? left : next;
    } catch {
      return left;
    }
  },
  ...(initial === undefined ? {} : { initial }),
  lastWrite: false,
  hidden: false,
});

/** As `reduced`, for reducers that know what to do when there is nothing yet: also the first write is what they make of it. */
export const reducedFromFirst = (reduce: (left: unknown, right: unknown) => unknown): Channel => ({
  ...reduced(reduce),
  reducesFirst: true,
});

export function messagesChannel(random: Random): Channel {
  return reduced(
    (left, right) => {
      const list = Array.isArray(left) ? (left as BaseMessage[]) : [];
      const writes: BaseMessage[] = [];
      for (const item of Array.isArray(right) ? right : [right]) {
        const message = toMessage(item);
        if (message !== null) writes.push(withId(message, random));
      }
      return foldMessages(list, writes);
    },
    () => [],
  );
}

/** The channels that a LangChain middleware's `stateSchema` asks for. Plain fields are last-write: two parallel tools may write them. */
export function channelsOfSchema(schema: unknown): Record<string, Channel> {
  const channels: Record<string, Channel> = {};
  for (const [key, field] of fieldsOf(schema)) {
    const hidden = key.startsWith('_');
    if (ReducedValue.isInstance(field)) {
      const { reducer } = field as unknown as { reducer: (left: unknown, right: unknown) => unknown };
      channels[key] = { ...reduced(reducer, initialOf(field.valueSchema)), hidden };
      continue;
    }
    const reducer = metaReducer(field);
    channels[key] =
      reducer === null
        ? lastWrite(initialOf(field), hidden)
        : { ...reduced(reducer as (left: unknown, right: unknown) => unknown, initialOf(field)), hidden };
  }
  return channels;
}

function fieldsOf(schema: unknown): [string, unknown][] {
  if (schema === undefined || schema === null) return [];
  if (StateSchema.isInstance(schema)) return Object.entries(schema.fields as Record<string, unknown>);
  if (isInteropZodObject(schema)) return Object.entries(getInteropZodObjectShape(schema));
  return [];
}

function metaReducer(field: unknown): ((left: unknown, right: unknown) => unknown) | null {
  const meta = schemaMetaRegistry.get(field as never) as { reducer?: { fn?: unknown } } | undefined;
  const fn = meta?.reducer?.fn;
  return typeof fn === 'function' ? (fn as (left: unknown, right: unknown) => unknown) : null;
}

/** The default that a field's schema gives to `undefined`, made anew for each thread. */
function initialOf(field: unknown): (() => unknown) | undefined {
  const parse = (): unknown => {
    try {
      const result = interopSafeParse(field as InteropZodType, undefined);
      return result.success ? result.data : undefined;
    } catch {
      return undefined;
    }
  };
  return parse() === undefined ? undefined : parse;
}

/** Channels as LangGraph's graph builder takes them. */
export function graphChannels(channels: Channels): Record<string, () => unknown> {
  const result: Record<string, () => unknown> = {};
  for (const [key, channel] of Object.entries({ ...channels, [JUMP]: lastWrite() }))
    result[key] = () =>
      channel.reducesFirst === true
        ? new FromFirst(channel.reduce, channel.initial)
        : new BinaryOperatorAggregate(channel.reduce, channel.initial);
  return result;
}

/** A channel whose first write goes through the reducer; one of which nothing is left writes nothing. */
class FromFirst extends BinaryOperatorAggregate<unknown> {
  override fromCheckpoint(checkpoint?: unknown): this {
    const channel = new FromFirst(this.operator, this.initialValueFactory);
    if (checkpoint !== undefined) channel.value = checkpoint;
    return channel as this;
  }

  override update(values: unknown[]): boolean {
    const left = [...values];
    while (this.value === undefined && left.length > 0) this.value = this.operator(undefined, left.shift());
    return left.length === 0 ? this.value !== undefined && values.length > 0 : super.update(left);
  }
}
