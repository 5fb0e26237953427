import { type Dictionary, isDictionary, listOf, textOr } from '../chat/wire.ts';

/** An MCP server as it is configured and as it is doing. */
export interface McpServer {
  readonly name: string;
  readonly enabled: boolean;
  readonly description: string;
  /** The whole entry, secrets masked: it is written back with what was changed. */
  readonly entry: Dictionary;
  /** `ready`, `connecting`, `failed`; null = switched off. */
  readonly state: string | null;
  readonly tools: readonly string[];
  /** Why it does not work. */
  readonly reason: string | null;
}

export type Transport = 'stdio' | 'http' | 'sse';

/** A server in the form: lines instead of lists. */
export interface ServerDraft {
  readonly name: string;
  readonly transport: Transport;
  readonly command: string;
  /** One per line. */
  readonly args: string;
  readonly url: string;
  /** `NAME=value` per line: the environment of a program, the headers of an address. */
  readonly secrets: string;
  readonly description: string;
}

export const EMPTY_SERVER: ServerDraft = {
  name: '',
  transport: 'stdio',
  command: 'npx',
  args: '',
  url: '',
  secrets: '',
  description: '',
};

export function readServers(value: unknown): readonly McpServer[] {
  const answer = isDictionary(value) ? value : {};
  const states = new Map(
    listOf(answer.status)
      .filter(isDictionary)
      .map((status) => [textOr(status.name, ''), status]),
  );
  const section = isDictionary(answer.mcp_servers) ? answer.mcp_servers : {};
  return Object.entries(section).flatMap(([name, entry]) => {
    if (!isDictionary(entry)) return [];
    const status = states.get(name);
    const enabled = entry.enabled !== false;
    return [
      {
        name,
        enabled,
        description: textOr(entry.description, ''),
        entry,
        state: enabled ? textOr(status?.state, 'connecting') : null,
        tools: listOf(status?.tools).filter((tool) => typeof tool === 'string'),
        reason: textOr(status?.reason, null),
      },
    ];
  });
}

/** Says something about all servers, not about one of them. */
export function generalProblems(value: unknown): readonly string[] {
  return listOf(isDictionary(value) ? value.status : null)
    .filter(isDictionary)
    .flatMap((status) => (status.name === '*' ? [textOr(status.reason, '')] : []));
}

export const sectionOf = (value: unknown): Dictionary =>
  isDictionary(value) && isDictionary(value.mcp_servers) ? value.mcp_servers : {};

export function draftOf({ name, entry }: McpServer): ServerDraft {
  const type = textOr(entry.type, textOr(entry.transport, typeof entry.command === 'string' ? 'stdio' : 'http'));
  const transport: Transport = type === 'sse' ? 'sse' : type === 'stdio' ? 'stdio' : 'http';
  const secrets = transport === 'stdio' ? entry.env : entry.headers;
  return {
    name,
    transport,
    command: textOr(entry.command, ''),
    args: listOf(entry.args).map(String).join('\n'),
    url: textOr(entry.url, ''),
    secrets: isDictionary(secrets)
      ? Object.entries(secrets)
          .map(([key, value]) => `${key}=${String(value)}`)
          .join('\n')
      : '',
    description: textOr(entry.description, ''),
  };
}

/** The entry to be written: what the form does not know of stays as it was, and a masked value keeps what is stored. */
export function entryOf(draft: ServerDraft, before: Dictionary): Dictionary {
  const { command: _command, args: _args, env: _env, url: _url, headers: _headers, transport: _old, ...rest } = before;
  const pairs = pairsOf(draft.secrets);
  const how: Dictionary =
    draft.transport === 'stdio'
      ? { command: draft.command.trim(), args: linesOf(draft.args), ...(pairs === null ? {} : { env: pairs }) }
      : { url: draft.url.trim(), ...(pairs === null ? {} : { headers: pairs }) };
  const { description: _description, ...kept } = rest;
  return {
    ...kept,
    type: draft.transport,
    ...how,
    ...(draft.description.trim() === '' ? {} : { description: draft.description.trim() }),
    enabled: before.enabled !== false,
  };
}

/** Lines that are no `NAME=value`; empty = all are. */
export const wrongLines = (text: string): readonly string[] =>
  linesOf(text).filter((line) => !/^[^=\s]+\s*=/.test(line));

function pairsOf(text: string): Dictionary | null {
  const pairs = linesOf(text).map((line): [string, string] => {
    const at = line.indexOf('=');
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  return pairs.length === 0 ? null : Object.fromEntries(pairs);
}

const linesOf = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');

export const isServerName = (name: string): boolean => /^[A-Za-z0-9_-]{1,64}$/.test(name);
