import type { Logger } from '@reindeer/protocol';
import type { Step } from './lifecycle.ts';

/** The memory as the stop sees it. */
export interface FlushingMemory {
  /** Begins to learn in the background; never fails and never waits (GW-02, GW-05). */
  start(): void;
  /** Lets what is being learned end. What waits stays in the database. */
  flush(timeoutMs: number): Promise<{ readonly complete: boolean; readonly waiting: number | null }>;
  close(): Promise<void>;
}

/** Closing is short once the flush has ended. */
const CLOSE_MS = 2_000;

/**
 * Stops the memory after the last run, which may still have noted its conversation, and before the sessions with MCP servers (GW-17). The flush
 * has all of its time, whatever else the memory is doing; one that fails or does not end leaves the memory closed all the same.
 *
 * @param memory null = nothing learns: there is nothing to stop
 */
export function memoryStep(memory: () => FlushingMemory | null, flushMs: number, logger: Logger): Step {
  return {
    name: 'memory',
    boundMs: flushMs + CLOSE_MS,
    start: async () => {},
    stop: async () => {
      const there = memory();
      if (there === null) {
        logger.debug('Nothing learns: no flush of the memory');
        return;
      }
      try {
        const { complete, waiting } = await there.flush(flushMs);
        if (!complete)
          logger.warn('What was being learned did not end in time; it is learned after the next start', { flushMs });
        else if (waiting !== null && waiting > 0)
          logger.info('Conversations wait to be remembered after the next start', { conversations: waiting });
      } finally {
        await there.close();
      }
    },
  };
}
