import {
  type CapturedMessage,
  type ClaimedCapture,
  MEMORY_AUDIT_LIMIT,
  type MemoryAudit,
  type MemoryChange,
  type MemoryDocument,
  type MemoryStore,
} from '@reindeer/protocol';

/** What every store of memories decides alike, on values that it has read and locked. */

export interface PendingCapture {
  readonly pending: readonly CapturedMessage[] | null;
  readonly leaving: readonly CapturedMessage[] | null;
  readonly signals: readonly string[];
  /** null = nothing waits. */
  readonly dueAt: number | null;
}

type Enqueued = Parameters<MemoryStore['enqueue']>[0];

/** The newest messages, up to a number. */
const newest = (messages: readonly CapturedMessage[], limit: number): readonly CapturedMessage[] =>
  messages.length <= limit ? messages : messages.slice(-limit);

/** Newer messages replace older ones; those that leave the conversation are kept until they were learned from. */
export function merged(before: PendingCapture | null, input: Enqueued): PendingCapture & { readonly dueAt: number } {
  const { leaving, messages, maxMessages, dueAt } = input;
  const signals = [...new Set([...(before?.signals ?? []), ...input.signals])];
  const earlier = before?.dueAt ?? null;
  if (!leaving) {
    const kept = before?.leaving ?? null;
    return {
      pending: newest(messages, maxMessages),
      leaving: kept,
      signals,
      // What was urgent stays so.
      dueAt: kept !== null && earlier !== null ? Math.min(earlier, dueAt) : dueAt,
    };
  }
  const ids = new Set(messages.map((message) => message.id));
  const all = [...(before?.leaving ?? []).filter((message) => !ids.has(message.id)), ...messages];
  return {
    pending: before?.pending ?? null,
    leaving: newest(all, maxMessages),
    signals,
    dueAt: Math.min(earlier ?? dueAt, dueAt),
  };
}

/** One conversation again: what left it comes first, and nothing twice. */
export function conversationOf(
  row: Pick<PendingCapture, 'pending' | 'leaving'>,
): Pick<ClaimedCapture, 'messages' | 'partial'> {
  const pending = row.pending ?? [];
  const ids = new Set(pending.map((message) => message.id));
  return {
    messages: [...(row.leaving ?? []).filter((message) => !ids.has(message.id)), ...pending],
    partial: row.pending === null,
  };
}

/** Is what the change builds on as it was, and is there room? Revision 0 = there is none. */
export function isAsSeen(change: MemoryChange, now: Pick<MemoryDocument, 'facts' | 'sections'>): boolean {
  const facts = new Map(now.facts.map((fact) => [fact.id, fact.revision]));
  const after = new Set(facts.keys());
  for (const id of change.remove) after.delete(id);
  for (const { id } of change.put) after.add(id);
  if (change.maxFacts !== null && after.size > change.maxFacts && after.size > facts.size) return false;
  return (
    Object.entries(change.seen.facts).every(([id, revision]) => (facts.get(id) ?? 0) === revision) &&
    Object.entries(change.seen.sections).every(
      ([name, revision]) => (now.sections[name as keyof typeof now.sections]?.revision ?? 0) === revision,
    )
  );
}

/** A fact that says what a changed one is about to say; null = none. */
export function duplicateOf(change: MemoryChange, now: Pick<MemoryDocument, 'facts'>): string | null {
  const going = new Set([...change.remove, ...change.put.map((fact) => fact.id)]);
  const taken = new Map<string, string>();
  for (const fact of now.facts) if (!going.has(fact.id)) taken.set(fact.contentKey, fact.id);
  for (const fact of change.put) {
    const other = taken.get(fact.contentKey);
    if (other !== undefined && other !== fact.id) return other;
    taken.set(fact.contentKey, fact.id);
  }
  return null;
}

export const audited = (before: readonly MemoryAudit[], added: readonly MemoryAudit[]): readonly MemoryAudit[] =>
  [...before, ...added].slice(-MEMORY_AUDIT_LIMIT);
