import type { BaseMessage } from '@langchain/core/messages';

/** Where what is remembered about a user comes from. The agent asks once per conversation. */
export interface MemorySource {
  /**
   * Text for the model, within the source's own budget; null or blank = nothing is remembered. It is data: the caller escapes it.
   * Settles within the time that the signal gives; a rejection means that the conversation goes on without memory.
   */
  context(input: {
    readonly userId: string;
    readonly threadId: string;
    readonly agentName: string;
    readonly signal: AbortSignal;
  }): Promise<string | null>;
}

/** Takes note of conversations from which something may be learned. */
export interface MemoryCapture {
  /** Settles when the note is kept; learning comes later. */
  capture(input: {
    readonly userId: string;
    readonly threadId: string;
    readonly agentName: string;
    readonly messages: readonly BaseMessage[];
    /** These messages leave the conversation: what is in them must be learned now. */
    readonly leaving: boolean;
  }): Promise<void>;
}
