import { type BaseMessage, ToolMessage } from '@langchain/core/messages';
import { ReindeerError } from '@reindeer/protocol';
import { isTool } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type ToolRequest } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { virtualPath } from '../tools/paths.ts';
import { READ_MARK, type ReadMark, sha256Of, WRITE_MARK } from '../tools/read-mark.ts';
import { TOOL_META, type ToolMeta } from '../tools/tool-meta.ts';
import { toolMessagesOf } from './tool-messages.ts';

export const READ_BEFORE_WRITE = 'read-before-write';

const WRITERS: ReadonlySet<string> = new Set(['write_file', 'str_replace']);
/** A larger file cannot be compared; it may be written (SG-08). */
const MAX_BYTES = 64 * 1024 * 1024;

const BLOCKED: ToolMeta = {
  status: 'error',
  error_type: 'permission',
  recoverable_by_model: true,
  recommended_next_action: 'try_alternative',
  source: 'result',
};

/**
 * Nobody overwrites a file that they have not seen as it is now (MW-11). `read_file` marks what it showed with the hash of the whole file;
 * a write to an existing file needs the newest mark for that path, in the history that the model still has, to be the file's hash now. A
 * write uses the mark up: of several that stand on the same one exactly one goes through, one after the other behind a lock per path. New
 * files are free. A file that cannot be inspected may be written (SG-08).
 *
 * The truth is the file and the history; what is remembered here only tells parallel calls of one step apart.
 */
export function readBeforeWriteMiddleware(): Middleware {
  // Marks that were used up and whose write the state of the parallel calls does not show yet.
  const used = new WeakMap<AttemptScope, Set<string>>();
  return defineMiddleware({
    name: READ_BEFORE_WRITE,
    async wrapToolCall(request, handler) {
      const path = targetOf(request);
      if (path === null) return handler(request);
      const scope = scopeOf(request.runtime);
      // A key of its own: the tool takes the lock of the file itself.
      return scope.serialise(`read-before-write:${path}`, async () => {
        const current = await currentHash(scope, path);
        if (current !== null) {
          const mark = newestMark(request.state.messages, path);
          const key = mark === null ? '' : `${mark.id}\n${path}`;
          const consumed = used.get(scope) ?? new Set<string>();
          used.set(scope, consumed);
          if (mark === null || mark.sha256 !== current || consumed.has(key))
            return refusal(request, mark === null ? 'unread' : 'changed');
          consumed.add(key);
        }
        const result = await handler(request);
        for (const message of toolMessagesOf(result)) if (message.status !== 'error') stamp(message, path);
        return result;
      });
    },
  });
}

/** The path that a call would change; null for other tools and for paths that the tool itself will refuse. */
function targetOf({ toolCall }: ToolRequest): string | null {
  if (!WRITERS.has(toolCall.name) || typeof toolCall.args.path !== 'string') return null;
  try {
    return virtualPath(toolCall.args.path);
  } catch {
    return null;
  }
}

/** Hash of the file as it is; null when there is none, or when it cannot be told. */
async function currentHash(scope: AttemptScope, path: string): Promise<string | null> {
  try {
    const { files } = await scope.sandbox();
    const info = await files.stat(path);
    if (info === null || info.kind !== 'file') return null;
    return await sha256Of(await files.read(path, { maxBytes: MAX_BYTES }));
  } catch (error) {
    if (ReindeerError.is(error) && error.code === 'aborted') throw error;
    return null;
  }
}

/** The newest mark for a path, unless a write came after it (SG-06). */
function newestMark(messages: readonly BaseMessage[], path: string): { readonly id: string; sha256: string } | null {
  for (let position = messages.length - 1; position >= 0; position--) {
    const message = messages[position];
    if (!isTool(message) || message.status === 'error') continue;
    if (message.additional_kwargs[WRITE_MARK] === path) return null;
    const mark = message.additional_kwargs[READ_MARK] as ReadMark | undefined;
    if (mark?.path === path) return { id: message.id ?? String(position), sha256: mark.sha256 };
  }
  return null;
}

function refusal({ toolCall }: ToolRequest, why: 'unread' | 'changed'): ToolMessage {
  const path = String(toolCall.args.path);
  const reason =
    why === 'unread'
      ? `${path} exists, and you have not read it since it was last written`
      : `${path} has changed since you read it, or another write has used that reading`;
  return new ToolMessage({
    tool_call_id: toolCall.id ?? '',
    name: toolCall.name,
    status: 'error',
    content: `Error: nothing was written. ${reason}. Read it with read_file (a few lines are enough), then write again.`,
    additional_kwargs: { [TOOL_META]: BLOCKED },
  });
}

function stamp(message: ToolMessage, path: string): void {
  message.additional_kwargs = { ...message.additional_kwargs, [WRITE_MARK]: path };
  message.lc_kwargs.additional_kwargs = message.additional_kwargs;
}
