import { type BaseMessage, isBaseMessage } from '@langchain/core/messages';
import { factKey, type NewFact } from '@reindeer/protocol';
import { type Known, type Packer, seemsSame } from './packer.ts';

/** A message channel as it stands at one checkpoint. */
export interface MessageList {
  readonly version: string;
  readonly messages: readonly BaseMessage[];
  /** What is remembered of each message, in the same order. */
  readonly known: readonly Known[];
}

export const EMPTY_LIST: MessageList = { version: '', messages: [], known: [] };

/** The message channels of one checkpoint, by channel name. */
export type MessageLists = ReadonlyMap<string, MessageList>;

/**
 * Reads a channel value as a message list, or answers null when it is something else. Elements that are the same objects as in
 * `before` cost a few comparisons; only the rest is looked at. `keep` = how many elements at the front are unchanged.
 */
export function readList(
  value: unknown,
  version: string,
  before: MessageList | undefined,
  packer: Packer,
): { readonly list: MessageList; readonly keep: number } | null {
  if (!Array.isArray(value)) return null;
  if (value.length === 0) return before === undefined ? null : { list: { ...EMPTY_LIST, version }, keep: 0 };
  const old = before ?? EMPTY_LIST;
  const limit = Math.min(old.messages.length, value.length);
  let keep = 0;
  while (keep < limit) {
    const known = old.known[keep];
    if (old.messages[keep] !== value[keep] || known === undefined || !seemsSame(known, value[keep] as BaseMessage))
      break;
    keep += 1;
  }
  for (let index = keep; index < value.length; index += 1) {
    if (!isBaseMessage(value[index])) return null;
  }
  // Copies: a reducer may go on to change its array in place.
  const messages = value.slice() as BaseMessage[];
  const known = old.known.slice(0, keep);
  for (let index = keep; index < messages.length; index += 1) known.push(packer.known(messages[index] as BaseMessage));
  return { list: { version, messages, known }, keep };
}

/** A message without an id is named by its content. */
const nameOf = (known: Known): string => known.id ?? known.hash;

/**
 * What happened to the messages of a channel between a checkpoint and its parent, as facts (D3). They are written in the
 * transaction of the checkpoint, so a crash can neither lose nor double one; the keys name the checkpoint, so that
 * LangGraph's putting it again is a no-op, and a message that comes back after a removal or a rollback is a fact again.
 *
 * @param keep elements at the front that are unchanged.
 * @param isElsewhere tells whether a message already stands in an enclosing namespace: a sub-graph's input is not news.
 */
export function diffFacts(input: {
  readonly ns: string;
  readonly checkpointId: string;
  readonly before: MessageList;
  readonly after: MessageList;
  readonly keep: number;
  readonly isElsewhere: (hash: string) => boolean;
}): NewFact[] {
  const { ns, checkpointId, before, after, keep, isElsewhere } = input;
  if (keep === before.known.length && keep === after.known.length) return [];
  const facts: NewFact[] = [];
  const gone = new Map<string, string>();
  for (let index = keep; index < before.known.length; index += 1) {
    const known = before.known[index] as Known;
    gone.set(nameOf(known), known.hash);
  }
  const news: Known[] = [];
  for (let index = keep; index < after.known.length; index += 1) {
    const known = after.known[index] as Known;
    const name = nameOf(known);
    const old = gone.get(name);
    gone.delete(name);
    if (old !== known.hash && !isElsewhere(known.hash)) news.push(known);
  }
  for (const [messageId, hash] of gone) {
    // Without an id there is nothing that a reader could remove.
    if (messageId === hash) continue;
    facts.push({
      key: factKey.messageRemoved(ns, messageId, checkpointId),
      body: { kind: 'message-removed', ns, messageId },
    });
  }
  for (const known of news) {
    facts.push({
      key: factKey.message(ns, nameOf(known), known.hash, checkpointId),
      body: { kind: 'message', ns, message: { $m: known.hash } },
    });
  }
  return facts;
}
