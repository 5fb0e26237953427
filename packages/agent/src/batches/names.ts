/** The graph that does one item of a batch. Internal: no client can ask for it. */
export const ITEM_AGENT = 'batch_item';

/** Options of the run of an item, under one key of its context. */
export const ITEM_OPTIONS = 'batch_item';

/** What an item's run needs to know; written by the executor alone. */
export interface ItemOptions {
  readonly batch_id: string;
  /** The same in every attempt: what the child names things by that must not be made twice (BT-16). */
  readonly item_key: string;
  readonly subagent_type: string;
  /** In whose name and on whose files it works. */
  readonly user_id: string;
  readonly thread_id: string;
  readonly model_name: string | null;
}
