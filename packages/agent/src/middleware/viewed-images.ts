import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { isAi, isTool } from '../loop/messages.ts';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { virtualPath } from '../tools/paths.ts';
import { imageType, MAX_IMAGE, VIEW_IMAGE, type ViewedImage } from '../tools/view-image.ts';

export const VIEWED_IMAGES = 'viewed-images';
/** Bytes of all pictures of one request. */
const MAX_TOTAL = 40 * 1024 * 1024;
const MAX_IMAGES = 10;

/**
 * Puts the pictures that the model has just asked for into its next request, and into no other (MW-23): base64 in the history would be sent again
 * with every step and stored with every checkpoint. Each is read anew and must still be what was looked at; one that is not is left out.
 */
export function viewedImagesMiddleware(): Middleware {
  return defineMiddleware({
    name: VIEWED_IMAGES,
    async wrapModelCall(request, handler) {
      const scope = scopeOf(request.runtime);
      const paths = scope.vision ? justAskedFor(request.state) : [];
      if (paths.length === 0) return handler(request);
      const note = await pictures(request.state, paths, scope);
      return note === null ? handler(request) : handler({ ...request, messages: [...request.messages, note] });
    },
  });
}

/** Paths of the calls of the last answer, when all of its calls have their result and nothing follows them. */
function justAskedFor(state: State): readonly string[] {
  const at = state.messages.findLastIndex(isAi);
  const message = state.messages[at];
  if (message === undefined || !isAi(message)) return [];
  const calls = message.tool_calls ?? [];
  const after = state.messages.slice(at + 1);
  if (calls.length === 0 || !after.every(isTool)) return [];
  const answered = new Set(
    after
      .filter(isTool)
      .filter((result) => result.status !== 'error')
      .map((result) => result.tool_call_id),
  );
  if (after.length < calls.length) return [];
  return calls.flatMap((call) => {
    const path: unknown = call.name === VIEW_IMAGE && answered.has(call.id ?? '') ? call.args.image_path : null;
    if (typeof path !== 'string') return [];
    try {
      return [virtualPath(path)];
    } catch {
      return [];
    }
  });
}

async function pictures(state: State, paths: readonly string[], scope: AttemptScope): Promise<BaseMessage | null> {
  const known = (state.viewed_images ?? {}) as Readonly<Record<string, ViewedImage | undefined>>;
  const blocks: { type: string; [key: string]: unknown }[] = [];
  let total = 0;
  for (const path of [...new Set(paths)].slice(0, MAX_IMAGES)) {
    const image = known[path];
    if (image === undefined || total + image.size > MAX_TOTAL) continue;
    try {
      const { files } = await scope.sandbox();
      const changed = image.modified_at !== undefined && (await files.stat(path))?.modifiedAt !== image.modified_at;
      if (changed) continue;
      const bytes = await files.read(path, { maxBytes: MAX_IMAGE });
      if (bytes.length !== image.size || imageType(bytes) !== image.mime_type) continue;
      total += bytes.length;
      const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64');
      blocks.push(
        { type: 'text', text: `${path}:` },
        { type: 'image_url', image_url: { url: `data:${image.mime_type};base64,${data}` } },
      );
    } catch {
      // Gone or changed since: the model sees the rest.
    }
  }
  if (blocks.length === 0) return null;
  return new HumanMessage({
    content: [{ type: 'text', text: 'The pictures that you asked for:' }, ...blocks] as never,
    additional_kwargs: { hide_from_ui: true },
  });
}
