import type { StructuredToolInterface } from '@langchain/core/tools';
import { askClarificationTool } from './ask-clarification.ts';
import { bashTool } from './bash.ts';
import { listUploadedFilesTool } from './list-uploads.ts';
import { presentFilesTool } from './present-files.ts';
import { readFileTool } from './read-file.ts';
import { globTool, grepTool, lsTool } from './search-files.ts';
import { viewImageTool } from './view-image.ts';
import { strReplaceTool, writeFileTool } from './write-files.ts';

export interface CoreToolSettings {
  readonly bashTimeoutMs: number;
  readonly bashMaxOutputCharacters: number;
  readonly readFileMaxCharacters: number;
  readonly listMaxCharacters: number;
  /** 0 = no limit. */
  readonly writeFileMaxBytes: number;
  /** Of the tools on the sandbox, those to offer; null = all. */
  readonly offered: readonly string[] | null;
  /** Values that may not appear in a result; those under 8 characters are ignored. */
  readonly secrets: readonly string[];
}

export const DEFAULT_CORE_TOOLS: CoreToolSettings = {
  bashTimeoutMs: 600_000,
  bashMaxOutputCharacters: 20_000,
  readFileMaxCharacters: 50_000,
  listMaxCharacters: 20_000,
  writeFileMaxBytes: 80 * 1024,
  offered: null,
  secrets: [],
};

/** The built-in tools, for what this machine's sandbox can do: without execution there is no `bash` (TOOL-1). */
export function coreTools(
  settings: CoreToolSettings,
  sandbox: { readonly canExecute: boolean; readonly pathStyle: 'virtual' | 'relative' },
): StructuredToolInterface[] {
  const { pathStyle } = sandbox;
  const { secrets } = settings;
  const search = { pathStyle, secrets, maxCharacters: settings.listMaxCharacters };
  const bash = bashTool({
    timeoutMs: settings.bashTimeoutMs,
    maxOutputCharacters: settings.bashMaxOutputCharacters,
    pathStyle,
    secrets,
  });
  const onSandbox = [
    ...(sandbox.canExecute ? [bash] : []),
    lsTool(search),
    readFileTool({ maxCharacters: settings.readFileMaxCharacters, secrets }),
    writeFileTool({ maxBytes: settings.writeFileMaxBytes }),
    strReplaceTool(),
    globTool(search),
    grepTool(search),
  ].filter((tool) => settings.offered === null || settings.offered.includes(tool.name));
  return [
    ...onSandbox,
    viewImageTool(pathStyle),
    listUploadedFilesTool(pathStyle),
    presentFilesTool(pathStyle),
    askClarificationTool(),
  ];
}
