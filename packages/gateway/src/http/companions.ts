import { CONVERTIBLE, type Converted } from '@reindeer/agent';
import { type FileInfo, type Logger, ReindeerError, type SandboxFiles } from '@reindeer/protocol';

/** Turns a document into Markdown; rejects for one that cannot be read. */
export type Convert = (name: string, bytes: Uint8Array) => Promise<Converted>;

/** Larger documents stay as they are, in bytes. */
const MAX_DOCUMENT = 50 * 1024 * 1024;
const MAX_MARKDOWN = 16 * 1024 * 1024;
const MARK = '<!-- Converted from ';
const MARK_BYTES = 2_048;

/**
 * Where the Markdown of a document may go: beside it, `report.pdf` → `report.md`, or `report.pdf.md` where that is another file, such as the Markdown
 * of `report.docx`. Empty = it is none that can be converted.
 */
function companionPaths(path: string): readonly string[] {
  const extension = /\.[^./]+$/.exec(path)?.[0] ?? '';
  return CONVERTIBLE.includes(extension.toLowerCase()) ? [`${path.slice(0, -extension.length)}.md`, `${path}.md`] : [];
}

/**
 * Puts a document's Markdown beside it (FILE-2), so that it can be read, searched and outlined. A file of the user's own is never overwritten, and a
 * document that cannot be read is no reason to refuse it.
 *
 * @returns the new file; null = there is none
 */
export async function makeCompanion(
  files: SandboxFiles,
  document: FileInfo,
  convert: Convert,
  logger: Logger,
): Promise<FileInfo | null> {
  const paths = companionPaths(document.path);
  if (paths.length === 0 || document.size > MAX_DOCUMENT) return null;
  const name = document.path.slice(document.path.lastIndexOf('/') + 1);
  try {
    const place = await placeFor(files, paths, name);
    if (place === null) return null;
    const { path, before } = place;
    const { markdown, note } = await convert(name, await files.read(document.path, { maxBytes: MAX_DOCUMENT }));
    const text = `${MARK}${name.replaceAll('--', '- -')} -->\n\n${note === null ? '' : `> ${note}\n\n`}${markdown}\n`;
    // Exclusive where there was nothing: a file that appears meanwhile is the user's.
    return await files.writeStream(path, once(text), { maxBytes: MAX_MARKDOWN * 4, overwrite: before });
  } catch (error) {
    logger.info('An uploaded document was not converted', {
      extension: /\.[^.]+$/.exec(name)?.[0] ?? '',
      reason: ReindeerError.is(error) ? error.message : String(error).slice(0, 200),
    });
    return null;
  }
}

/** The first place that is free, or holds what was made from this document before; null = both belong to somebody else. */
async function placeFor(
  files: SandboxFiles,
  paths: readonly string[],
  name: string,
): Promise<{ readonly path: string; readonly before: boolean } | null> {
  for (const path of paths) {
    if ((await files.stat(path)) === null) return { path, before: false };
    if (await isGenerated(files, path, name)) return { path, before: true };
  }
  return null;
}

/** Takes the generated Markdown of a document away; a file of the user's own stays. */
export async function removeCompanion(files: SandboxFiles, document: string): Promise<void> {
  const name = document.slice(document.lastIndexOf('/') + 1);
  for (const path of companionPaths(document))
    if ((await files.stat(path)) !== null && (await isGenerated(files, path, name))) await files.remove(path);
}

async function isGenerated(files: SandboxFiles, path: string, name: string): Promise<boolean> {
  const { stream } = await files.openRead(path, { start: 0, end: MARK_BYTES });
  let head = '';
  const decoder = new TextDecoder();
  for await (const chunk of stream) head += decoder.decode(chunk, { stream: true });
  return head.startsWith(`${MARK}${name.replaceAll('--', '- -')} -->`);
}

async function* once(text: string): AsyncGenerator<Uint8Array> {
  yield new TextEncoder().encode(text);
}
