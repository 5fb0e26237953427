import type { StructuredToolInterface } from '@langchain/core/tools';
import type { FileInfo } from '@reindeer/protocol';
import { IGNORED_FOLDERS } from '@reindeer/sandbox';
import { z } from 'zod';
import { defineTool } from './define.ts';
import { shownPath, virtualPath } from './paths.ts';
import { headLines } from './text.ts';

export interface SearchSettings {
  readonly pathStyle: 'virtual' | 'relative';
  readonly maxCharacters: number;
  readonly secrets: readonly string[];
}

const LIST_LIMIT = 2_000;
const GLOB = { usual: 200, most: 1_000 } as const;
const GREP = { usual: 100, most: 500 } as const;
const description = z.string().describe('In a few words: why you look.');
const left = (what: string) => (count: number) => `[… ${count} more ${what} left out; look in a narrower folder]`;

/** Lists a folder two levels deep (TOOL-3). */
export function lsTool(settings: SearchSettings): StructuredToolInterface {
  return defineTool({
    name: 'ls',
    description: 'Lists the files of a folder, two levels deep. Folders end with a slash.',
    schema: z.object({ description, path: z.string().describe('Path of the folder.') }),
    repeatable: true,
    secrets: settings.secrets,
    async run({ path }, { sandbox }) {
      const box = await sandbox();
      const { entries, truncated } = await box.files.list(virtualPath(path), {
        depth: 2,
        limit: LIST_LIMIT,
        ignore: IGNORED_FOLDERS,
      });
      if (entries.length === 0) return '(empty folder)';
      const lines = entries.map((entry) => lineOf(entry, settings.pathStyle)).sort();
      if (truncated) lines.push(`[Only the first ${LIST_LIMIT} entries are listed.]`);
      return headLines(lines, settings.maxCharacters, left('entries'));
    },
  });
}

function lineOf(entry: FileInfo, style: SearchSettings['pathStyle']): string {
  const path = shownPath(entry.path, style);
  if (entry.kind === 'directory') return `${path}/`;
  return entry.kind === 'file' ? path : `${path} (${entry.kind}; not readable)`;
}

/** Finds files by name pattern (TOOL-3). */
export function globTool(settings: SearchSettings): StructuredToolInterface {
  return defineTool({
    name: 'glob',
    description: `Finds files by a name pattern such as **/*.md. At most ${GLOB.most} results.`,
    schema: z.object({
      description,
      pattern: z.string().min(1).describe('Pattern relative to path; ** crosses folders.'),
      path: z.string().describe('Folder to search.'),
      include_dirs: z.boolean().optional().describe('Answer folders too.'),
      max_results: z.number().int().min(1).optional().describe(`Default ${GLOB.usual}.`),
    }),
    repeatable: true,
    secrets: settings.secrets,
    async run({ pattern, path, include_dirs, max_results }, { sandbox, signal }) {
      const limit = Math.min(max_results ?? GLOB.usual, GLOB.most);
      const box = await sandbox();
      const { paths, truncated } = await box.files.glob(pattern, virtualPath(path), {
        includeDirectories: include_dirs ?? false,
        limit,
        ...(signal === undefined ? {} : { signal }),
      });
      if (paths.length === 0) return `No file matches ${pattern}.`;
      const lines = paths.map((found) => shownPath(found, settings.pathStyle));
      if (truncated) lines.push(`[Only the first ${paths.length} results are shown; use a narrower pattern.]`);
      return headLines(lines, settings.maxCharacters, left('results'));
    },
  });
}

/** Searches the text of files (TOOL-3). */
export function grepTool(settings: SearchSettings): StructuredToolInterface {
  return defineTool({
    name: 'grep',
    description: `Searches the text of files for a regular expression, line by line. At most ${GREP.most} results.`,
    schema: z.object({
      description,
      pattern: z.string().min(1).describe('Regular expression, or plain text with literal.'),
      path: z.string().describe('Folder or file to search.'),
      glob: z.string().optional().describe('Only files whose name matches, e.g. *.ts.'),
      literal: z.boolean().optional().describe('Take the pattern as plain text.'),
      case_sensitive: z.boolean().optional().describe('Default false.'),
      max_results: z.number().int().min(1).optional().describe(`Default ${GREP.usual}.`),
    }),
    repeatable: true,
    secrets: settings.secrets,
    async run({ pattern, path, glob, literal, case_sensitive, max_results }, { sandbox, signal }) {
      const limit = Math.min(max_results ?? GREP.usual, GREP.most);
      const box = await sandbox();
      const found = await box.files.grep(pattern, virtualPath(path), {
        literal: literal ?? false,
        caseSensitive: case_sensitive ?? false,
        limit,
        ...(glob === undefined ? {} : { glob }),
        ...(signal === undefined ? {} : { signal }),
      });
      const lines = found.matches.map(
        (match) => `${shownPath(match.path, settings.pathStyle)}:${match.line}: ${match.text}`,
      );
      if (lines.length === 0) lines.push(`Nothing matches ${pattern}.`);
      if (found.truncated)
        lines.push(`[Only the first ${found.matches.length} results are shown; search a narrower folder.]`);
      if (found.filesSkipped > 0) lines.push(`[${found.filesSkipped} files were not searched: binary or too large.]`);
      return headLines(lines, settings.maxCharacters, left('results'));
    },
  });
}
