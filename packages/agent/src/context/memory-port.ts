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
