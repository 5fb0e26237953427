import type { StructuredToolInterface } from '@langchain/core/tools';
import { type FileInfo, ReindeerError, type SandboxFiles, VIRTUAL_ROOT } from '@reindeer/protocol';
import { z } from 'zod';
import { defineTool } from './define.ts';
import { companionsOf, outlineOf } from './outline.ts';
import { shownPath } from './paths.ts';

const FOLDER = `${VIRTUAL_ROOT}/uploads`;
const MOST = 1_000;
const OUTLINE_BYTES = 1024 * 1024;
const OUTLINED = 20;

/** Earlier uploads, so that nobody has to send a file again (TOOL-8). Those that came with the current message are in the request anyway. */
export function listUploadedFilesTool(pathStyle: 'virtual' | 'relative'): StructuredToolInterface {
  return defineTool({
    name: 'list_uploaded_files',
    description:
      'Lists the files that the user uploaded earlier in this conversation, newest first, without those of the newest message. With include_outline their headings and line numbers come along: true for all, or a list of file names.',
    schema: z.object({
      include_outline: z.union([z.boolean(), z.array(z.string().max(255)).max(100)]).default(false),
      max_results: z.number().int().min(1).max(100).default(20),
    }),
    repeatable: true,
    async run({ include_outline, max_results }, { sandbox, state }) {
      const { files } = await sandbox();
      const current = new Set(((state?.uploaded_files ?? []) as { filename?: unknown }[]).map((file) => file.filename));
      const all = await uploads(files);
      const names = new Set(all.map(nameOf));
      const found = all
        .filter((file) => !current.has(nameOf(file)) && !isCompanion(nameOf(file), names))
        .sort((a, b) => b.modifiedAt - a.modifiedAt);
      if (found.length === 0) return 'No files were uploaded before.';
      const lines: string[] = [];
      let outlined = 0;
      for (const file of found.slice(0, max_results)) {
        const name = nameOf(file);
        lines.push(
          `- ${shownPath(file.path, pathStyle)} (${file.size} bytes, ${new Date(file.modifiedAt).toISOString().slice(0, 16)})`,
        );
        const wanted = include_outline === true || (Array.isArray(include_outline) && include_outline.includes(name));
        if (!wanted || outlined >= OUTLINED) continue;
        outlined += 1;
        for (const line of await outline(files, file, names)) lines.push(`    ${line}`);
      }
      if (found.length > max_results) lines.push(`… and ${found.length - max_results} more`);
      return lines.join('\n');
    },
  });
}

async function uploads(files: SandboxFiles): Promise<FileInfo[]> {
  try {
    const { entries } = await files.list(FOLDER, { depth: 1, limit: MOST });
    return entries.filter((entry) => entry.kind === 'file' && !nameOf(entry).startsWith('.'));
  } catch (error) {
    if (ReindeerError.is(error) && error.code === 'not_found') return [];
    throw error;
  }
}

const nameOf = (file: FileInfo): string => file.path.slice(file.path.lastIndexOf('/') + 1);

/** Markdown beside a document of the same name was made from it. */
const isCompanion = (name: string, names: ReadonlySet<string>): boolean =>
  name.endsWith('.md') &&
  [...names].some(
    (other) => other !== name && companionsOf(other).includes(name) && /\.(pdf|docx|xlsx|pptx|html?)$/i.test(other),
  );

async function outline(files: SandboxFiles, file: FileInfo, names: ReadonlySet<string>): Promise<readonly string[]> {
  const markdown = companionsOf(nameOf(file)).find((name) => names.has(name));
  const path = markdown === undefined ? file.path : `${FOLDER}/${markdown}`;
  try {
    const bytes = await files.read(path, { maxBytes: OUTLINE_BYTES });
    if (bytes.subarray(0, 8_192).includes(0)) return [];
    const { entries, truncated } = outlineOf(new TextDecoder().decode(bytes));
    return [...entries.map((entry) => `line ${entry.line}: ${entry.title}`), ...(truncated ? ['…'] : [])];
  } catch {
    return ['(no outline: the file is too large; search it with grep)'];
  }
}
