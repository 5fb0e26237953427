import type { BatchStore, Logger } from '@reindeer/protocol';
import { sql } from 'kysely';
import { defineScript, defineStatement } from '../executor.ts';
import type { PostgresClient } from './client.ts';

/** Items from which a new batch changes what the planner should know of the tables. */
const MANY_ITEMS = 500;

const statistics = defineStatement((db) => {
  const query = sql`analyze batch_items, batch_item_details`;
  return { compile: () => query.compile(db) };
});
const analyse = defineScript(
  'batches.analyse',
  'write',
  async (tx): Promise<void> => {
    await tx.run(statistics, {});
  },
  'alone',
);

/**
 * Tells the planner of a large batch at once. Otherwise it goes by statistics of before, until the server looks by itself: then a claim walks
 * through every item that waits, and each item costs the more the more there are.
 */
export function withStatistics(store: BatchStore, client: Pick<PostgresClient, 'run'>, logger: Logger): BatchStore {
  return {
    ...store,
    create: async (input) => {
      const answer = await store.create(input);
      if (answer.outcome === 'created' && input.items.length >= MANY_ITEMS)
        try {
          await client.run(analyse, {});
        } catch (error) {
          logger.warn('The database could not be told of a large batch; it may be slow for a minute', {
            error: String(error),
          });
        }
      return answer;
    },
  };
}
