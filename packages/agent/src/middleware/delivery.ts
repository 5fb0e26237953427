import { hiddenNote } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { escapedText } from '../safety/tags.ts';
import { ERROR_FALLBACK } from './llm-errors.ts';
import { isStopped } from './stopping.ts';
import { isFinal } from './todos.ts';

export const DELIVERY = 'delivery';
const SHOWN = 5;

/**
 * A run that leaves files in outputs and presents none of them ends as an error (FILE-4b). Before that its agent is told so once: the files
 * are there, and all that is missing is one call. The note stands in the next request only.
 */
export function deliveryMiddleware(): Middleware {
  // Per attempt: what the next request says; null = it was said.
  const told = new WeakMap<AttemptScope, readonly string[] | null>();
  return defineMiddleware({
    name: DELIVERY,
    afterModel: {
      canJumpTo: ['model'],
      async hook(state, runtime) {
        const last = state.messages.at(-1);
        if (!isFinal(last) || isStopped(last) || last.additional_kwargs[ERROR_FALLBACK] === true) return undefined;
        const scope = scopeOf(runtime);
        const { attempt } = scope;
        if (attempt.undelivered === undefined || told.has(scope)) return undefined;
        const files = await attempt.undelivered();
        if (files.length === 0) return undefined;
        told.set(scope, files);
        return { jumpTo: 'model' };
      },
    },
    wrapModelCall(request, handler) {
      const scope = scopeOf(request.runtime);
      const files = told.get(scope) ?? null;
      if (files === null) return handler(request);
      told.set(scope, null);
      return handler({ ...request, messages: [...request.messages, hiddenNote(noteOf(files), 'delivery_reminder')] });
    },
  });
}

function noteOf(files: readonly string[]): string {
  const list = files.slice(0, SHOWN).map((path) => `- ${escapedText(path)}`);
  const more = files.length > SHOWN ? [`- and ${files.length - SHOWN} more`] : [];
  return [
    'The user cannot see these files yet, because none of them was presented:',
    ...list,
    ...more,
    'Call present_files with those that are results, and move what is none out of outputs. Then close with one short sentence.',
  ].join('\n');
}
