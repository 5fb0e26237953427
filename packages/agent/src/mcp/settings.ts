import { z } from 'zod';

/** How the token of a protected server is got (MCP-6). */
export interface OAuthSettings {
  readonly tokenUrl: string;
  readonly grantType: 'client_credentials' | 'refresh_token';
  readonly clientId: string | null;
  readonly clientSecret: string | null;
  readonly refreshToken: string | null;
  readonly scope: string | null;
  readonly audience: string | null;
  readonly tokenField: string;
  readonly tokenTypeField: string;
  readonly expiresInField: string;
  readonly defaultTokenType: string;
  /** How long before its end a token is replaced, in milliseconds. */
  readonly refreshSkewMs: number;
  readonly extra: Readonly<Record<string, string>>;
}

/** One server of `mcpServers`, read. */
export interface McpServer {
  readonly name: string;
  readonly transport:
    | {
        readonly type: 'stdio';
        readonly command: string;
        readonly args: readonly string[];
        readonly env: Readonly<Record<string, string>>;
      }
    | {
        readonly type: 'http' | 'sse';
        readonly url: string;
        readonly headers: Readonly<Record<string, string>>;
        readonly oauth: OAuthSettings | null;
      };
  /** Are its tools called `{server}_{tool}`? */
  readonly prefix: boolean;
  /** Milliseconds for one call; null = the run's own end. */
  readonly callTimeoutMs: number | null;
  /** Milliseconds to connect and list tools; null = no bound of its own. */
  readonly initTimeoutMs: number | null;
}

export interface ServerProblem {
  readonly server: string;
  /** Names the key and what is right; safe to show. */
  readonly reason: string;
}

export interface McpSettings {
  readonly servers: readonly McpServer[];
  /** Servers that cannot be used as they are written; the others work. */
  readonly problems: readonly ServerProblem[];
}

const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const MAX_SERVERS = 100;
const strings = z.record(z.string(), z.coerce.string(), { error: 'must be a list of NAME: value' });
const seconds = z.number({ error: 'must be a number of seconds' }).positive('must be more than 0').max(86_400);

const oauthSchema = z.looseObject({
  enabled: z.boolean().default(true),
  token_url: z.url({ error: 'must be a web address' }),
  grant_type: z
    .enum(['client_credentials', 'refresh_token'], { error: 'must be client_credentials or refresh_token' })
    .default('client_credentials'),
  client_id: z.string().nullish(),
  client_secret: z.string().nullish(),
  refresh_token: z.string().nullish(),
  scope: z.string().nullish(),
  audience: z.string().nullish(),
  token_field: z.string().default('access_token'),
  token_type_field: z.string().default('token_type'),
  expires_in_field: z.string().default('expires_in'),
  default_token_type: z.string().default('Bearer'),
  refresh_skew_seconds: z.number().min(0).max(86_400).default(60),
  extra_token_params: strings.default({}),
});

const serverSchema = z.looseObject({
  enabled: z.boolean({ error: 'must be true or false' }).default(true),
  type: z.string().nullish(),
  transport: z.string().nullish(),
  command: z.string().nullish(),
  args: z.array(z.coerce.string(), { error: 'must be a list' }).nullish(),
  env: strings.nullish(),
  url: z.string().nullish(),
  headers: strings.nullish(),
  oauth: oauthSchema.nullish(),
  tool_name_prefix: z.boolean({ error: 'must be true or false' }).default(true),
  tool_call_timeout: seconds.nullish(),
  session_init_timeout: seconds.nullable().default(60),
});
type ServerEntry = z.output<typeof serverSchema>;

/**
 * Reads `mcpServers` (MCP-1). A server that is written wrongly is left out and named; it never keeps the others away. Disabled servers
 * are not looked at.
 */
export function readServers(section: unknown): McpSettings {
  if (section === undefined || section === null) return { servers: [], problems: [] };
  if (typeof section !== 'object' || Array.isArray(section))
    return {
      servers: [],
      problems: [{ server: '*', reason: 'mcpServers must be an object with a key for each server' }],
    };
  const servers: McpServer[] = [];
  const problems: ServerProblem[] = [];
  const entries = Object.entries(section);
  for (const [name, value] of entries.slice(0, MAX_SERVERS)) {
    if ((value as { enabled?: unknown } | null)?.enabled === false) continue;
    const read = serverOf(name, value);
    if ('reason' in read) problems.push({ server: name.slice(0, 64), reason: read.reason });
    else servers.push(read);
  }
  if (entries.length > MAX_SERVERS)
    problems.push({ server: '*', reason: `there are more than ${MAX_SERVERS} servers; the rest is left out` });
  return { servers, problems };
}

function serverOf(name: string, value: unknown): McpServer | { readonly reason: string } {
  if (!NAME.test(name))
    return { reason: 'its name may have letters, digits, "_" and "-" only, at most 64: it becomes part of tool names' };
  const read = serverSchema.safeParse(value, { reportInput: false });
  if (!read.success) {
    const [issue] = read.error.issues;
    return { reason: `${issue?.path.join('.') || 'the entry'} ${issue?.message ?? 'is wrong'}` };
  }
  const entry = read.data;
  const transport = transportOf(entry);
  if ('reason' in transport) return transport;
  return {
    name,
    transport,
    prefix: entry.tool_name_prefix,
    callTimeoutMs: entry.tool_call_timeout == null ? null : entry.tool_call_timeout * 1000,
    initTimeoutMs: entry.session_init_timeout === null ? null : entry.session_init_timeout * 1000,
  };
}

function transportOf(entry: ServerEntry): McpServer['transport'] | { readonly reason: string } {
  // Without a word about it, a command means stdio and an address HTTP, as other programs write it.
  const named = entry.type ?? entry.transport ?? (entry.command == null && entry.url != null ? 'http' : 'stdio');
  switch (named) {
    case 'stdio':
      if (entry.command == null || entry.command === '')
        return { reason: 'command is missing, which a stdio server needs' };
      return { type: 'stdio', command: entry.command, args: entry.args ?? [], env: entry.env ?? {} };
    case 'sse':
    case 'http':
    case 'streamable_http':
    case 'streamable-http': {
      const url = URL.parse(entry.url ?? '');
      if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:'))
        return { reason: `url must be a web address, which a server of type ${named} needs` };
      return {
        type: named === 'sse' ? 'sse' : 'http',
        url: url.href,
        headers: entry.headers ?? {},
        oauth: entry.oauth == null || !entry.oauth.enabled ? null : oauthOf(entry.oauth),
      };
    }
    default:
      return { reason: `type "${named.slice(0, 40)}" is not known; use stdio, http or sse` };
  }
}

function oauthOf(oauth: z.output<typeof oauthSchema>): OAuthSettings {
  return {
    tokenUrl: oauth.token_url,
    grantType: oauth.grant_type,
    clientId: oauth.client_id ?? null,
    clientSecret: oauth.client_secret ?? null,
    refreshToken: oauth.refresh_token ?? null,
    scope: oauth.scope ?? null,
    audience: oauth.audience ?? null,
    tokenField: oauth.token_field,
    tokenTypeField: oauth.token_type_field,
    expiresInField: oauth.expires_in_field,
    defaultTokenType: oauth.default_token_type,
    refreshSkewMs: oauth.refresh_skew_seconds * 1000,
    extra: oauth.extra_token_params,
  };
}
