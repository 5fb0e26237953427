export interface FeedbackTables {
  feedback: FeedbackTable;
}

export interface FeedbackTable {
  thread_id: string;
  run_id: string;
  user_id: string;
  feedback_id: string;
  message_id: string | null;
  rating: number;
  comment: string | null;
  created_at: number;
}
