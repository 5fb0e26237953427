import { isId, ReindeerError, VIRTUAL_ROOT } from '@reindeer/protocol';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { scopeOf } from '../loop/scope.ts';

export const THREAD_DATA = 'thread-data';

const PATHS = {
  workspace_path: `${VIRTUAL_ROOT}/workspace`,
  uploads_path: `${VIRTUAL_ROOT}/uploads`,
  outputs_path: `${VIRTUAL_ROOT}/outputs`,
} as const;

/**
 * Notes the thread's folders in the state (MW-4): by their virtual paths, since the state is shown to clients and host paths are
 * nobody's business. Folders are made when they are first used. The newest message of the user is stamped with run and
 * time where the input enters the graph, so that it is stored once. Throws `bad_request` without a usable thread id.
 */
export function threadDataMiddleware(): Middleware {
  return defineMiddleware({
    name: THREAD_DATA,
    beforeAgent(state, runtime) {
      const { threadId } = scopeOf(runtime).attempt.run;
      if (!isId(threadId)) throw new ReindeerError('bad_request', `"${threadId}" is not a usable thread id.`);
      return state.thread_data === undefined ? { thread_data: PATHS } : undefined;
    },
  });
}
