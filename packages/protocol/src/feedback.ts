/** What a user thinks of a run's answer. At most one per run and user; a new one replaces it. */
export interface Feedback {
  readonly feedbackId: string;
  readonly threadId: string;
  readonly runId: string;
  readonly userId: string;
  /** The message that is meant; null = the answer as a whole. */
  readonly messageId: string | null;
  readonly rating: 1 | -1;
  readonly comment: string | null;
  /** Wall-clock milliseconds of the newest one. */
  readonly createdAt: number;
}

export interface FeedbackStore {
  /** Keeps the id of the one that it replaces. */
  put(feedback: Feedback): Promise<Feedback>;
  /** Of one run, or of a whole thread; by time. At most 1,000. */
  list(input: { readonly threadId: string; readonly runId: string | null }): Promise<readonly Feedback[]>;
  /** The user's own. `feedbackId` null = whichever it is. Answers whether there was one. */
  remove(input: {
    readonly threadId: string;
    readonly runId: string;
    readonly userId: string;
    readonly feedbackId: string | null;
  }): Promise<boolean>;
}
