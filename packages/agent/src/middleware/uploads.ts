import { type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { type SandboxFiles, type SandboxProvider, VIRTUAL_ROOT } from '@reindeer/protocol';
import { isGenuineUser, isHuman } from '../loop/messages.ts';
import { defineMiddleware, type Middleware } from '../loop/middleware.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { companionsOf, outlineOf } from '../tools/outline.ts';

export const UPLOADS = 'uploads';

const FOLDER = `${VIRTUAL_ROOT}/uploads`;
const DETAILED = 10;
const MOST = 200;
const PREVIEW_LINES = 5;
const PREVIEW_CHARACTERS = 200;
/** Longer texts are not read for a preview. */
const OUTLINE_BYTES = 1024 * 1024;
const PROSE = /\.(md|txt)$/i;
const TEXT_FILE = /\.(md|txt|csv|tsv|json|ya?ml|xml|html?|log|py|[jt]sx?|sh|sql|ini|toml)$/i;

export interface UploadedFile {
  readonly filename: string;
  readonly size: number;
  readonly path: string;
  readonly extension: string;
}

/**
 * Tells the model which files came with the newest message (MW-5). The list is made once per run and put before the user's words in
 * the request only: the stored message stays what the user wrote. Files of earlier turns are not listed again.
 */
export function uploadsMiddleware(sandboxes: SandboxProvider): Middleware {
  // One list per attempt: its text must not change between two calls of a run, and files are read once.
  const lists = new WeakMap<AttemptScope, Promise<string>>();
  return defineMiddleware({
    name: UPLOADS,
    async beforeAgent(state, runtime) {
      const { userId, threadId } = scopeOf(runtime).attempt.run;
      const message = state.messages.findLast(isHuman);
      const names = message === undefined ? [] : namesOf(message);
      if (names.length === 0) {
        const before = state.uploaded_files;
        return Array.isArray(before) && before.length > 0 ? { uploaded_files: [] } : undefined;
      }
      return { uploaded_files: await existing(sandboxes.files({ userId, threadId }), names) };
    },
    async wrapModelCall(request, handler) {
      const files = (request.state.uploaded_files ?? []) as readonly UploadedFile[];
      // Not the last message of all: a goal that goes on puts one of the harness behind it.
      const position = request.messages.findLastIndex(isGenuineUser);
      const message = request.messages[position];
      if (files.length === 0 || message === undefined || namesOf(message).length === 0) return handler(request);
      const scope = scopeOf(request.runtime);
      const { userId, threadId } = scope.attempt.run;
      const list = lists.get(scope) ?? listing(sandboxes.files({ userId, threadId }), files);
      lists.set(scope, list);
      const text = await list;
      return handler({ ...request, messages: request.messages.with(position, withPrefix(message, text)) });
    },
  });
}

/** Plain base names that a client may mean; anything with a path in it, or a hidden staging name, is left out. */
function namesOf(message: BaseMessage): string[] {
  const files: unknown = message.additional_kwargs.files;
  if (!Array.isArray(files)) return [];
  return files
    .map((file: unknown) => (file as { filename?: unknown } | null)?.filename)
    .filter(
      (name): name is string => typeof name === 'string' && /^[^/\\\0]{1,255}$/.test(name) && !name.startsWith('.'),
    )
    .slice(0, MOST);
}

async function existing(files: SandboxFiles, names: readonly string[]): Promise<UploadedFile[]> {
  const found: UploadedFile[] = [];
  for (const filename of new Set(names)) {
    const path = `${FOLDER}/${filename}`;
    const info = await files.stat(path).catch(() => null);
    if (info?.kind !== 'file') continue;
    const extension = /\.[^.]+$/.exec(filename)?.[0].toLowerCase() ?? '';
    found.push({ filename, size: info.size, path, extension });
  }
  return found;
}

async function listing(files: SandboxFiles, uploaded: readonly UploadedFile[]): Promise<string> {
  const lines = ['<current_uploads>', 'These files came with this message:'];
  for (const file of uploaded.slice(0, DETAILED)) {
    lines.push(`- ${neutral(file.filename)} (${humanSize(file.size)}): ${neutral(file.path)}`);
    lines.push(...(await outline(files, file)).map((line) => `    ${neutral(line)}`));
  }
  const rest = uploaded.slice(DETAILED);
  if (rest.length > 0) lines.push(`and ${rest.length} more: ${byExtension(rest)}. List them with ls ${FOLDER}.`);
  lines.push('Read them with read_file; find passages with grep; find files with glob.', '</current_uploads>');
  return lines.join('\n');
}

/** Headings with their line numbers, from a text or the Markdown that a conversion put beside the file; else the first lines. */
async function outline(files: SandboxFiles, file: UploadedFile): Promise<string[]> {
  const isText = TEXT_FILE.test(file.filename);
  const sources = isText ? [file.path] : companionsOf(file.filename).map((name) => `${FOLDER}/${name}`);
  for (const source of sources) {
    const info = await files.stat(source).catch(() => null);
    if (info?.kind !== 'file') continue;
    if (info.size > OUTLINE_BYTES) break;
    const text = await files.read(source, { maxBytes: OUTLINE_BYTES }).then(
      (bytes) => new TextDecoder().decode(bytes),
      () => '',
    );
    // A hash at the beginning of a line is a heading in prose, and a comment in most of the others.
    const { entries, truncated } = PROSE.test(source) ? outlineOf(text) : { entries: [], truncated: false };
    if (entries.length > 0)
      return [
        ...entries.map(({ line, title }) => `line ${line}: ${shortened(title)}`),
        ...(truncated ? ['… and more headings; find them with grep'] : []),
      ];
    return text.split('\n', PREVIEW_LINES).map(shortened);
  }
  return ['(no preview; search it with grep)'];
}

const shortened = (line: string): string =>
  line.length > PREVIEW_CHARACTERS ? `${line.slice(0, PREVIEW_CHARACTERS)}…` : line;
/** Nothing from a file may look like a tag of the harness. */
const neutral = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

function humanSize(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`;
  return bytes < 1_048_576 ? `${(bytes / 1_024).toFixed(1)} KB` : `${(bytes / 1_048_576).toFixed(1)} MB`;
}

function byExtension(files: readonly UploadedFile[]): string {
  const counts = new Map<string, number>();
  for (const { extension } of files)
    counts.set(extension || 'no extension', (counts.get(extension || 'no extension') ?? 0) + 1);
  return [...counts].map(([extension, count]) => `${count} × ${neutral(extension)}`).join(', ');
}

function withPrefix(message: BaseMessage, text: string): HumanMessage {
  const content =
    typeof message.content === 'string'
      ? `${text}\n\n${message.content}`
      : [{ type: 'text' as const, text }, ...message.content];
  return new HumanMessage({
    content,
    ...(message.id === undefined ? {} : { id: message.id }),
    ...(message.name === undefined ? {} : { name: message.name }),
    additional_kwargs: message.additional_kwargs,
  });
}
