import type { JsonObject } from './json.ts';

/**
 * Conversations in a messenger. A *channel* is one bot at one provider (`telegram:123456`): one exclusive right to listen and to answer, held by
 * one instance under a token.
 *
 * A message that came in is a row of the ledger until its answer has gone out:
 *
 *   received → running → answering → done | failed
 *   received → answering
 *   failed → received, when the provider delivers it again
 *
 * Everything that its answer needs stands in the row before it is acted upon, so that whoever holds the channel next goes on where the last one was.
 */
export type ChannelMessageState = 'received' | 'running' | 'answering' | 'done' | 'failed';

export interface ChannelFence {
  readonly channel: string;
  readonly token: string;
}

export interface ChannelFile {
  /** As the provider knows it. */
  readonly id: string;
  /** As the sender called it: never a path of ours. */
  readonly name: string;
  /** Bytes; null = the provider does not say. */
  readonly size: number | null;
}

/** A message as every adapter makes it. */
export interface ChannelMessage {
  /** The provider's; unique in the channel. */
  readonly messageId: string;
  readonly chatId: string;
  readonly group: boolean;
  /** What of a chat is one conversation; '' = all of it. */
  readonly topic: string;
  /** '' where the provider has none. */
  readonly workspaceId: string;
  readonly senderId: string;
  readonly senderName: string;
  /** Without a mention of the bot at its beginning. */
  readonly text: string;
  readonly files: readonly ChannelFile[];
  /** What an answer refers to in a chat of several; null = nothing. */
  readonly answerTo: string | null;
}

/** What a message's run is asked, as it was settled before the run was made: a repeated launch asks the very same. */
export interface ChannelWork {
  readonly threadId: string;
  readonly assistantId: string;
  readonly text: string;
  readonly config: JsonObject;
  readonly context: JsonObject;
  readonly files: readonly { readonly filename: string; readonly size: number; readonly path: string }[];
  /** For the sender, above the answer: which files were not taken, and why. */
  readonly notices: readonly string[];
}

export type ChannelPart =
  | { readonly kind: 'text'; readonly text: string }
  /** A file in the outputs of the thread, by its virtual path. */
  | { readonly kind: 'file'; readonly path: string };

/** What goes out for a message, and how far that is. */
export interface ChannelReply {
  readonly parts: readonly ChannelPart[];
  /** Parts that went out for sure. */
  readonly sent: number;
  /** The message failed: it is taken again if the provider delivers it again. */
  readonly failed: boolean;
}

/** What is known of a message beside the message itself; written whole by the holder of the channel. */
export interface ChannelProgress {
  readonly state: ChannelMessageState;
  /** For whom it is; null = not known (yet). */
  readonly userId: string | null;
  readonly work: ChannelWork | null;
  /** The message of ours that the answer is written into; null = there is none. */
  readonly shownId: string | null;
  readonly reply: ChannelReply | null;
  /** Tries of the present step that failed. */
  readonly tries: number;
  readonly dueAt: number;
}

export interface ChannelEntry extends ChannelProgress {
  /** Order of arrival. */
  readonly key: number;
  readonly channel: string;
  /** How often the message was taken: 1, and one more for each time that it failed and came again. */
  readonly round: number;
  readonly message: ChannelMessage;
  readonly receivedAt: number;
}

/** An account of a messenger that acts for a user. */
export interface ChannelConnection {
  readonly connectionId: string;
  readonly userId: string;
  readonly provider: string;
  readonly workspaceId: string;
  readonly externalId: string;
  readonly externalName: string;
  readonly createdAt: number;
}

/** Which conversation of which user. */
export interface ChannelConversation {
  readonly channel: string;
  readonly chatId: string;
  readonly topic: string;
  readonly userId: string;
}

export interface ChannelStore {
  /**
   * Takes the right to a channel under a new token: free, over for `graceMs`, or this owner's own from before. One statement decides.
   *
   * @returns `busy`: another one holds it until then, as its row says
   */
  acquire(input: {
    readonly channel: string;
    readonly owner: string;
    readonly token: string;
    readonly leaseMs: number;
    readonly graceMs: number;
    readonly now: number;
  }): Promise<{ readonly outcome: 'held' } | { readonly outcome: 'busy'; readonly until: number }>;
  /** False = the right is lost. */
  renew(input: { readonly fence: ChannelFence; readonly leaseMs: number; readonly now: number }): Promise<boolean>;
  release(fence: ChannelFence): Promise<void>;

  /**
   * Takes messages, in one transaction. One that is known writes nothing, unless it failed: then it is new again.
   * `full`: more than `limit` would wait; nothing was taken.
   */
  receive(input: {
    readonly fence: ChannelFence;
    readonly messages: readonly ChannelMessage[];
    readonly limit: number;
    readonly now: number;
  }): Promise<{ readonly outcome: 'taken'; readonly fresh: number } | { readonly outcome: 'full' | 'fenced' }>;
  /** Messages that are not over and are due, oldest first. */
  due(input: {
    readonly channel: string;
    readonly limit: number;
    readonly now: number;
  }): Promise<readonly ChannelEntry[]>;
  /**
   * Writes how far a message is. What is over stays so, and keeps nothing of what was said.
   *
   * @returns false = the right is lost
   */
  progress(input: {
    readonly fence: ChannelFence;
    readonly key: number;
    readonly progress: ChannelProgress;
    readonly now: number;
  }): Promise<boolean>;
  /** Forgets messages that have been over since `before`. */
  forget(input: { readonly channel: string; readonly before: number }): Promise<void>;

  /**
   * The thread of a conversation. `threadId` becomes it where there is none, or, with `fresh`, in any case. Of several that come at once one is
   * first, and all get the same answer. null = the right is lost.
   */
  converse(input: {
    readonly fence: ChannelFence;
    readonly conversation: ChannelConversation;
    readonly threadId: string;
    readonly fresh: boolean;
    readonly now: number;
  }): Promise<string | null>;
  /** null = it has no thread (yet). */
  threadOf(conversation: ChannelConversation): Promise<string | null>;

  /** `full`: the user has `limit` codes for this provider that are neither used nor over. */
  issueCode(input: {
    readonly provider: string;
    readonly userId: string;
    readonly codeHash: string;
    readonly expiresAt: number;
    readonly limit: number;
    readonly now: number;
  }): Promise<'issued' | 'full'>;
  /**
   * Uses a code up and connects whoever sent it, in one transaction; the account leaves whom it acted for before. One statement uses it up. A
   * repeat for the same message answers the same.
   */
  redeem(input: {
    readonly fence: ChannelFence;
    readonly key: number;
    readonly codeHash: string;
    readonly connection: Omit<ChannelConnection, 'userId' | 'createdAt'>;
    readonly now: number;
  }): Promise<{ readonly outcome: 'connected'; readonly userId: string } | { readonly outcome: 'invalid' | 'fenced' }>;
  /** For whom an account acts; null = for nobody. */
  connectionOf(input: {
    readonly provider: string;
    readonly workspaceId: string;
    readonly externalId: string;
  }): Promise<ChannelConnection | null>;
  /** The user's own, oldest first; at most 100. */
  connections(input: { readonly userId: string }): Promise<readonly ChannelConnection[]>;
  /** False = the user has none of that id. */
  disconnect(input: { readonly userId: string; readonly connectionId: string }): Promise<boolean>;
}
