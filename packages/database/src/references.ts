import type { Packed, PackedMessage } from '@reindeer/protocol';
import type { Tx } from './executor.ts';
import { loadMessages } from './messages.ts';

/**
 * Where a message stands elsewhere in the store. Inside a JSON string the quotes would be escaped, so that no text of a user can
 * look like one.
 */
const REFERENCE = /\{"\$m":"([A-Za-z0-9_-]{22})"\}/g;

/** The content addresses that JSON texts mention, each once. */
export function referencesIn(texts: readonly string[]): string[] {
  const hashes = new Set<string>();
  for (const text of texts)
    for (const match of text.matchAll(REFERENCE)) if (match[1] !== undefined) hashes.add(match[1]);
  return [...hashes];
}

/** Puts message bodies in the place of references. A reference to nothing stays as it is: it is data that looks like one. */
export async function resolveReferences(tx: Tx, threadId: string, texts: readonly string[]): Promise<string[]> {
  const hashes = referencesIn(texts);
  if (hashes.length === 0) return [...texts];
  const bodies = new Map((await loadMessages(tx, threadId, hashes)).map((message) => [message.hash, message.body]));
  return texts.map((text) => text.replace(REFERENCE, (reference, hash: string) => bodies.get(hash) ?? reference));
}

/** A stored value with the messages that it mentions. */
export async function loadPacked(tx: Tx, threadId: string, json: string): Promise<Packed> {
  const messages: PackedMessage[] = await loadMessages(tx, threadId, referencesIn([json]));
  return { json, messages };
}
