import { DEFAULT_WEB_TOOLS, WEB_PROVIDERS, WEB_TOOLS, type WebToolName, type WebToolSettings } from '@reindeer/agent';
import { entryOf } from '@reindeer/protocol';
import { didYouMean } from '../nearest.ts';
import { isOwnModule } from './class-path.ts';
import { type KeyPath, wrongValue } from './readers.ts';
import type { ConfigFile } from './schema.ts';

export interface ToolSettings {
  /** The sandbox tools to offer; null = all of them. */
  readonly sandbox: readonly string[] | null;
  readonly web: readonly WebToolSettings[];
  /** Tools from modules of the operator's own (TOOL-18). */
  readonly own: readonly OwnToolEntry[];
  /** Which group each configured tool is in: agents can be kept to groups. */
  readonly groups: ReadonlyMap<string, string>;
}

export interface OwnToolEntry {
  readonly name: string;
  /** `path:export`. */
  readonly use: string;
  /** All other keys of the entry. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** Names that no other tool may take: policies, audits and the page know what they mean. */
const RESERVED: readonly string[] = [
  'present_files',
  'ask_clarification',
  'view_image',
  'list_uploaded_files',
  'write_todos',
  'task',
  'batch_task',
  'batch_status',
  'batch_wait',
  'cancel_batch',
  'tool_search',
  'setup_agent',
  'update_agent',
];
const NAME = /^[A-Za-z0-9_-]{1,64}$/;

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
 * @param told hears what is left out, and where it stands
 * @throws ReindeerError `configuration` for a web provider that is not known
 */
export function toolsOf(config: ConfigFile, told: (path: KeyPath, text: string) => void = () => {}): ToolSettings {
  if (config.tools == null) return { sandbox: null, web: DEFAULT_WEB_TOOLS, own: [], groups: new Map() };
  const sandbox = new Set<string>();
  const web: WebToolSettings[] = [];
  const own: OwnToolEntry[] = [];
  const groups = new Map<string, string>();
  for (const [index, { name, group, use, ...options }] of config.tools.entries()) {
    if (group != null) groups.set(name, group);
    if (use != null && isOwnModule(use)) own.push({ name: ownName(index, name, own), use, options });
    else if (SANDBOX_TOOLS.includes(name)) sandbox.add(name);
    else if (isWebTool(name)) web.push({ tool: name, provider: providerOf(index, name, use), options });
    else
      told(
        ['tools', index, 'name'],
        `tools: there is no tool "${name}" in this version.${didYouMean(name, [...SANDBOX_TOOLS, ...WEB_TOOLS])} It is left out.`,
      );
  }
  const names = new Set(own.map(({ name }) => name));
  // One of the same name as a web tool stands for it.
  return { sandbox: [...sandbox], web: web.filter(({ tool }) => !names.has(tool)), own, groups };
}

function ownName(index: number, name: string, before: readonly OwnToolEntry[]): string {
  const wrong = [...SANDBOX_TOOLS, ...RESERVED].includes(name)
    ? 'is the name of a tool of Reindeer. Give yours another one'
    : before.some((entry) => entry.name === name)
      ? 'stands there twice. Names must differ'
      : NAME.test(name)
        ? null
        : 'may only have letters, digits, _ and -, at most 64';
  if (wrong === null) return name;
  throw wrongValue(['tools', index, 'name'], `tools: "${name.slice(0, 80)}" ${wrong}.`);
}

const isWebTool = (name: string): name is WebToolName => WEB_TOOLS.includes(name as WebToolName);

/** `use` as a short name, or a class path of the reference such as `package.community.tavily.tools:web_search_tool`. */
function providerOf(index: number, tool: WebToolName, use: string | null | undefined): string {
  if (use == null) return DEFAULT_WEB_TOOLS.find((entry) => entry.tool === tool)?.provider ?? 'duckduckgo';
  const folder = /\.community\.(\w+)/.exec(use)?.[1] ?? use;
  const name = entryOf(CARRIED_OVER, folder) ?? folder;
  const possible = WEB_PROVIDERS[tool];
  if (possible.includes(name)) return name;
  throw wrongValue(
    ['tools', index, 'use'],
    `tools: ${tool} cannot use "${use}".${didYouMean(name, possible)} Providers in this version: ${possible.join(', ')}.`,
  );
}
