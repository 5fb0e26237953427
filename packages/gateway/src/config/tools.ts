import { DEFAULT_WEB_TOOLS, WEB_PROVIDERS, WEB_TOOLS, type WebToolName, type WebToolSettings } from '@reindeer/agent';
import { ReindeerError } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import type { ConfigFile } from './schema.ts';

export interface ToolSettings {
  /** The sandbox tools to offer; null = all of them. */
  readonly sandbox: readonly string[] | null;
  readonly web: readonly WebToolSettings[];
  /** Which group each configured tool is in: agents can be kept to groups. */
  readonly groups: ReadonlyMap<string, string>;
  readonly warnings: readonly string[];
}

/** Tools on the sandbox that an operator may leave out. `present_files` and `ask_clarification` are always there. */
export const SANDBOX_TOOLS: readonly string[] = [
  'bash',
  'ls',
  'read_file',
  'write_file',
  'str_replace',
  'glob',
  'grep',
];

/** Folder names in the reference's class paths → our providers. */
export const CARRIED_OVER: Readonly<Record<string, string>> = {
  ddg_search: 'duckduckgo',
  image_search: 'duckduckgo',
  jina_ai: 'jina',
  brave_search: 'brave',
};

/**
 * Section `tools` (TOOL-1a). Left out, every tool is there; with it, of the sandbox and web tools those that it lists.
 *
 * @throws ReindeerError `configuration` for a web provider that is not known
 */
export function toolsOf(config: ConfigFile): ToolSettings {
  if (config.tools == null) return { sandbox: null, web: DEFAULT_WEB_TOOLS, groups: new Map(), warnings: [] };
  const sandbox = new Set<string>();
  const web: WebToolSettings[] = [];
  const groups = new Map<string, string>();
  const warnings: string[] = [];
  for (const { name, group, use, ...options } of config.tools) {
    if (group != null) groups.set(name, group);
    if (SANDBOX_TOOLS.includes(name)) sandbox.add(name);
    else if (isWebTool(name)) web.push({ tool: name, provider: providerOf(name, use), options });
    else
      warnings.push(
        `tools: there is no tool "${name}" in this version.${didYouMean(name, [...SANDBOX_TOOLS, ...WEB_TOOLS])} It is left out.`,
      );
  }
  return { sandbox: [...sandbox], web, groups, warnings };
}

const isWebTool = (name: string): name is WebToolName => WEB_TOOLS.includes(name as WebToolName);

/** `use` as a short name, or a class path of the reference such as `package.community.tavily.tools:web_search_tool`. */
function providerOf(tool: WebToolName, use: string | null | undefined): string {
  if (use == null) return DEFAULT_WEB_TOOLS.find((entry) => entry.tool === tool)?.provider ?? 'duckduckgo';
  const folder = /\.community\.(\w+)/.exec(use)?.[1] ?? use;
  const name = CARRIED_OVER[folder] ?? folder;
  const possible = WEB_PROVIDERS[tool];
  if (possible.includes(name)) return name;
  throw new ReindeerError(
    'configuration',
    `tools: ${tool} cannot use "${use}".${didYouMean(name, possible)} Providers in this version: ${possible.join(', ')}.`,
  );
}
