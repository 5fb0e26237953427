/**
 * What is remembered about users (MEM-2). Facts belong to a user and an agent, summaries to the user. A summary is a list of statements, and each
 * statement names the facts that it was made from: so that forgetting a fact can take every statement with it that says it.
 */

/** The parts of a summary, as documents name them; the first three are about the user, the others about the past. */
export const MEMORY_SECTIONS = [
  'workContext',
  'personalContext',
  'topOfMind',
  'recentMonths',
  'earlierContext',
  'longTermBackground',
] as const;
export type MemorySectionName = (typeof MEMORY_SECTIONS)[number];
export const USER_SECTIONS: readonly MemorySectionName[] = ['workContext', 'personalContext', 'topOfMind'];
export const HISTORY_SECTIONS: readonly MemorySectionName[] = ['recentMonths', 'earlierContext', 'longTermBackground'];

export const MEMORY_CATEGORIES = [
  'preference',
  'knowledge',
  'context',
  'behavior',
  'goal',
  'correction',
  'other',
] as const;

/** Bucket of the default agent; no custom agent can have this name. */
export const DEFAULT_MEMORY_AGENT = '_default';

export interface MemoryFact {
  readonly id: string;
  readonly content: string;
  readonly category: string;
  /** 0 to 1. */
  readonly confidence: number;
  /** Milliseconds, as all times here. */
  readonly createdAt: number;
  /** When the user last said so. */
  readonly confirmedAt: number;
  /** When it was last told to a model; null = never. */
  readonly accessedAt: number | null;
  /** The thread that it comes from, or `manual`, `import`, `consolidation`. */
  readonly source: string;
  /** What was believed wrongly before, for corrections. */
  readonly sourceError: string | null;
  /** Not reviewed for staleness before. */
  readonly reviewAfter: number | null;
  readonly consolidatedFrom: readonly string[];
}

/** A fact as a store keeps it. */
export interface StoredMemoryFact extends MemoryFact {
  /** Equal for contents that say the same; unique within user and agent. */
  readonly contentKey: string;
  /** Grows with every change of the fact. */
  readonly revision: number;
}

export interface MemoryStatement {
  readonly text: string;
  /** Ids of the facts that it was made from, of whichever agent. */
  readonly sources: readonly string[];
}

export interface MemorySection {
  readonly statements: readonly MemoryStatement[];
  readonly updatedAt: number;
  readonly revision: number;
}

export interface MemoryDocument {
  /** Grows with every change of anything that is remembered of the user. 0 = nothing was ever remembered. */
  readonly revision: number;
  readonly updatedAt: number | null;
  /** Sections that say something. */
  readonly sections: Readonly<Partial<Record<MemorySectionName, MemorySection>>>;
  /** Oldest first. */
  readonly facts: readonly StoredMemoryFact[];
}

/** Why a fact went. Carries nothing of its content: what is forgotten is forgotten here too. */
export interface MemoryAudit {
  readonly at: number;
  readonly factId: string;
  readonly act: 'evicted' | 'removed' | 'stale' | 'consolidated';
}

/** Entries of the audit that a store keeps per user, the newest. */
export const MEMORY_AUDIT_LIMIT = 200;

/** All of it is written, or nothing. */
export interface MemoryChange {
  /** Revisions as they were when the change was worked out; 0 = there was none. If one differs, the change is a conflict. */
  readonly seen: {
    readonly facts: Readonly<Record<string, number>>;
    readonly sections: Readonly<Partial<Record<MemorySectionName, number>>>;
  };
  /** Facts of the agent, new or changed. */
  readonly put: readonly (MemoryFact & { readonly contentKey: string })[];
  readonly remove: readonly string[];
  /** No statements = the section goes. */
  readonly sections: Readonly<Partial<Record<MemorySectionName, readonly MemoryStatement[]>>>;
  readonly audit: readonly MemoryAudit[];
  /** A change that leaves the agent with more facts than before and more than this is a conflict; null = no limit. */
  readonly maxFacts: number | null;
}

export type MemoryChanged =
  | { readonly outcome: 'ok'; readonly revision: number }
  /** Somebody else changed what the change builds on: read again and work it out anew. */
  | { readonly outcome: 'conflict' }
  /** Another fact says the same. */
  | { readonly outcome: 'duplicate'; readonly factId: string };

/** One message of a conversation from which facts may be learned. */
export interface CapturedMessage {
  readonly id: string;
  readonly role: 'user' | 'assistant';
  readonly text: string;
}

export interface CaptureKey {
  readonly userId: string;
  readonly agent: string;
  readonly threadId: string;
}

/** The right to learn from a conversation, and what there is to learn from. */
export interface ClaimedCapture extends CaptureKey {
  readonly token: string;
  /** Of what was claimed; newer messages have a higher one. */
  readonly version: number;
  /** Oldest first. Those that a compaction took out of the conversation come before the others. */
  readonly messages: readonly CapturedMessage[];
  /** Only messages that a compaction took out: the conversation itself goes on behind them. */
  readonly partial: boolean;
  readonly signals: readonly string[];
  /** Id of the last message that was learned from; null = none. */
  readonly watermark: string | null;
  /** Failed tries before this one. */
  readonly attempts: number;
}

export type CaptureRight = CaptureKey & { readonly token: string; readonly version: number };

/**
 * What is remembered, and the conversations from which something may still be learned (MEM-3, MEM-5). The queue is made of rows: a process
 * that dies loses none, and the deletion of a thread takes its row along. A claimed conversation is held under a token; newer messages that
 * come meanwhile make it due again.
 *
 * Every method rejects with `store_unavailable` when the store cannot answer. Damaged data is an `internal` error, never an empty document.
 */
export interface MemoryStore {
  read(input: { readonly userId: string; readonly agent: string }): Promise<MemoryDocument>;
  change(input: {
    readonly userId: string;
    readonly agent: string;
    readonly change: MemoryChange;
    readonly now: number;
  }): Promise<MemoryChanged>;
  /** Why facts of the user went, oldest first. */
  audit(input: { readonly userId: string }): Promise<readonly MemoryAudit[]>;
  /** Removes everything that is remembered of a user, and what waits to be learned, also from under those who learn right now. */
  clear(input: { readonly userId: string; readonly now: number }): Promise<void>;

  /**
   * Notes a conversation. Newer messages replace older ones of the same conversation, signals are added up.
   *
   * @returns `dropped` when as many wait as may: `maxPending` conversations, twice as many for one with a signal
   */
  enqueue(
    input: CaptureKey & {
      readonly messages: readonly CapturedMessage[];
      /** The messages leave the conversation: they are kept beside those that replace one another. */
      readonly leaving: boolean;
      readonly signals: readonly string[];
      readonly dueAt: number;
      readonly maxPending: number;
      /** Messages kept of each kind, the newest. */
      readonly maxMessages: number;
      readonly now: number;
    },
  ): Promise<'queued' | 'dropped'>;
  /** Takes conversations that are due and that nobody holds, the longest due first; as many as there are tokens. */
  claim(input: {
    readonly tokens: readonly string[];
    readonly leaseUntil: number;
    readonly now: number;
  }): Promise<readonly ClaimedCapture[]>;
  /** Writes what was learned, and that it was, in one transaction. `fenced`: the right was lost, nothing is written. */
  settle(input: {
    readonly right: CaptureRight;
    /** null = nothing was learned. */
    readonly change: MemoryChange | null;
    readonly watermark: string | null;
    /** Conversations whose watermark is kept, the newest. */
    readonly maxWatermarks: number;
    readonly now: number;
  }): Promise<MemoryChanged | { readonly outcome: 'fenced' }>;
  /** Gives the right back; the conversation is due again at `dueAt`. */
  postpone(input: {
    readonly right: CaptureRight;
    readonly dueAt: number;
    /** A try that failed, as against one that was not made. */
    readonly failed: boolean;
  }): Promise<void>;
  /** Conversations that wait or are held. */
  pending(input: { readonly userId: string | null }): Promise<number>;
}
