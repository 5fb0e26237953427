import type { Surroundings } from '@reindeer/protocol';
import type { MemoryCapture } from '../context/memory-port.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';
import { withoutStrangers } from '../safety/channels.ts';

export const MEMORY_CAPTURE = 'memory-capture';

/**
 * Notes the conversation for the memory when a turn has ended (MW-22): the reply does not wait for anything to be learned. User and agent are
 * those of the run, fixed here, since the learning comes later. A memory that cannot be reached costs the run nothing but a warning.
 */
export function memoryCaptureMiddleware(
  capture: MemoryCapture,
  defaultAgent: string,
  { logger }: Pick<Surroundings, 'logger'>,
): Middleware {
  return defineMiddleware({
    name: MEMORY_CAPTURE,
    async afterAgent(state, runtime) {
      const { attempt, agent } = scopeOf(runtime);
      const { userId, threadId } = attempt.run;
      const agentName = agent?.name ?? defaultAgent;
      const messages = withoutStrangers(state.messages);
      if (messages.length === 0) return undefined;
      try {
        await capture.capture({ userId, threadId, agentName, messages, leaving: false });
      } catch (error) {
        logger.warn('The conversation could not be noted for the memory', {
          threadId,
          reason: error instanceof Error ? error.name : 'unknown',
        });
      }
      return undefined;
    },
  });
}
