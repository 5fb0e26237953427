import { ReindeerError } from '@reindeer/protocol';
import type { Middleware } from '../loop/middleware.ts';
import { APPROVAL } from './approval.ts';
import { CLARIFICATION } from './clarification.ts';
import { LLM_ERRORS } from './llm-errors.ts';
import { SANDBOX } from './sandbox.ts';
import { THREAD_DATA } from './thread-data.ts';
import { TITLE } from './title.ts';
import { TOOL_ERRORS } from './tool-errors.ts';
import { UPLOADS } from './uploads.ts';

/** Why one middleware must stand before another; `*` stands for every other one. First = outermost. */
export interface OrderRule {
  readonly before: string;
  readonly after: string;
  readonly reason: string;
}

/** The order of the list as data (MW-38). A rule counts only when both of its middlewares are in the list. */
export const ORDER_RULES: readonly OrderRule[] = [
  { before: THREAD_DATA, after: UPLOADS, reason: 'uploads are looked up in the thread’s folders' },
  { before: THREAD_DATA, after: SANDBOX, reason: 'a sandbox mounts the thread’s folders' },
  { before: SANDBOX, after: TOOL_ERRORS, reason: 'a failed tool that used the sandbox must still note it' },
  {
    before: LLM_ERRORS,
    after: 'modelFallbackMiddleware',
    reason: 'a model’s failure is final only after its fallbacks failed',
  },
  {
    before: LLM_ERRORS,
    after: 'modelRetryMiddleware',
    reason: 'a failure is turned into a message only when no retry is left',
  },
  {
    before: TOOL_ERRORS,
    after: 'toolRetryMiddleware',
    reason: 'a failure is turned into a message only when no retry is left',
  },
  {
    before: APPROVAL,
    after: TITLE,
    reason: 'a person is asked last, about the calls as all other hooks left them',
  },
  {
    before: '*',
    after: CLARIFICATION,
    reason: 'a question to the user ends the turn and must see the call as all others left it',
  },
];

/** Checks a list against the rules. Throws `configuration`, naming both middlewares and the reason, at the first that is broken. */
export function checkOrder(middleware: readonly Middleware[], rules: readonly OrderRule[] = ORDER_RULES): void {
  const position = new Map(middleware.map((item, index) => [item.name, index]));
  for (const { before, after, reason } of rules) {
    const second = position.get(after);
    if (second === undefined) continue;
    const wrong =
      before === '*'
        ? middleware.findLast((_, index) => index > second)?.name
        : (position.get(before) ?? -1) > second
          ? before
          : undefined;
    if (wrong !== undefined)
      throw new ReindeerError('configuration', `Middleware "${wrong}" must stand before "${after}": ${reason}.`, {
        detail: { before: wrong, after },
      });
  }
}
