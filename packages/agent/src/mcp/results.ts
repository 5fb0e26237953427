import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { entryOf, ReindeerError, type SandboxFiles } from '@reindeer/protocol';
import type { Hide } from '../tools/text.ts';

/** What the model and the page get of a call. */
export interface MappedResult {
  readonly text: string;
  /** Data of the result for programs; null = none, or too much to keep. */
  readonly structured: unknown;
}

const MAX_TEXT = 1_000_000;
const MAX_STRUCTURED = 256 * 1024;
const MAX_FILES = 20;
const MAX_FILE_BYTES = 20 * 1024 * 1024;
const FOLDER = '/mnt/user-data/workspace/mcp';
const EXTENSIONS: Readonly<Record<string, string>> = {
  'image/png': 'png',
  'image/jpeg': 'jpg',
  'image/webp': 'webp',
  'image/gif': 'gif',
  'audio/wav': 'wav',
  'audio/mpeg': 'mp3',
  'application/pdf': 'pdf',
  'application/json': 'json',
  'text/plain': 'txt',
  'text/csv': 'csv',
};

/**
 * Brings a result into the form of our tools (MCP-5): texts joined, an error as an exception, data beside the text. Pictures, sound and files are
 * kept as files of the thread and named, since few providers take them in a tool's result; `view_image` shows a picture to the model.
 *
 * @param name what files are called after: unique to the call
 * @param hide takes secrets out, before the text is cut: what is left of a cut one is hidden by nobody
 * @param files null where there is no place for files: they are left out then, and the text says so
 * @throws ReindeerError `tool_failed` with the text of a result that is an error
 */
export async function mapResult(
  result: CallToolResult,
  name: string,
  files: () => Promise<SandboxFiles | null>,
  hide: Hide = (text) => text,
): Promise<MappedResult> {
  const parts: string[] = [];
  let kept = 0;
  const keep = async (data: string, mediaType: string): Promise<string> => {
    const bytes = Buffer.from(data, 'base64');
    const what = `${mediaType}, ${bytes.length} bytes`;
    if (kept >= MAX_FILES || bytes.length > MAX_FILE_BYTES) return `[${what}: too much to keep]`;
    const place = await files();
    if (place === null) return `[${what}: not kept, this agent has no files]`;
    kept += 1;
    const path = `${FOLDER}/${name}-${kept}.${entryOf(EXTENSIONS, mediaType) ?? 'bin'}`;
    await place.writeStream(path, once(bytes), { maxBytes: MAX_FILE_BYTES, overwrite: true });
    return `[${what}: ${path}]`;
  };
  for (const part of result.content) {
    switch (part.type) {
      case 'text':
        parts.push(part.text);
        break;
      case 'image':
      case 'audio':
        parts.push(await keep(part.data, part.mimeType));
        break;
      case 'resource_link':
        parts.push(`[${part.name}: ${part.uri}]`);
        break;
      case 'resource':
        parts.push(
          'text' in part.resource
            ? part.resource.text
            : await keep(part.resource.blob, part.resource.mimeType ?? 'application/octet-stream'),
        );
        break;
    }
  }
  const joined = bounded(parts.join('\n'), hide);
  if (result.isError === true)
    throw new ReindeerError('tool_failed', joined.trim() || 'the tool failed and did not say why');
  return { text: joined || textOf(result.structuredContent, hide), structured: small(result.structuredContent) };
}

/** A server may answer data alone. */
const textOf = (structured: unknown, hide: Hide): string =>
  structured === undefined ? '(no output)' : bounded(JSON.stringify(structured), hide);

const bounded = (text: string, hide: Hide): string =>
  text.length <= MAX_TEXT ? text : hide(text.slice(0, MAX_TEXT), { end: true }).slice(0, MAX_TEXT);

function small(structured: unknown): unknown {
  if (structured === undefined) return null;
  return JSON.stringify(structured).length <= MAX_STRUCTURED ? structured : null;
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}
