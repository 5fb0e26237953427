import { z } from '@hono/zod-openapi';
import type { McpServers } from '@reindeer/agent';
import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import type { ExtensionsFile } from '../config/extensions.ts';
import { checkStdioPolicy } from '../config/mcp-config.ts';
import { maskServers, unmaskServers } from '../config/mcp-masks.ts';
import type { Variables } from '../config/substitute.ts';
import { type Api, route } from './route.ts';

const tag = 'MCP';
const servers = z.record(z.string().max(64), z.record(z.string(), z.unknown()));
const SECTION = 'mcpServers';

export interface McpParts {
  readonly extensions: ExtensionsFile;
  readonly servers: McpServers;
  readonly variables: Variables;
}

/** Reading and changing MCP servers, for whoever may use the API (MCP-10). */
export function mcpRoutes(api: Api, { extensions, servers: running, variables }: McpParts): void {
  const shown = async (): Promise<JsonObject> => {
    // Whoever has just changed a server wants to know whether it works, and not at the next run only.
    await running.refresh();
    return {
      mcp_servers: maskServers((await extensions.raw())[SECTION]),
      status: running.status().map(({ name, state, tools, reason }) => ({ name, state, tools: [...tools], reason })),
    };
  };
  const isSame = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

  route(
    api,
    {
      method: 'get',
      path: '/mcp/config',
      tag,
      summary: 'The MCP servers, their secrets masked, and how each is doing.',
      answers: { 200: '{mcp_servers, status}' },
    },
    async ({ c }) => c.json(await shown()),
  );
  route(
    api,
    {
      method: 'put',
      path: '/mcp/config',
      tag,
      summary: 'Replaces the MCP servers. A masked value keeps what is stored.',
      body: z.strictObject({ mcp_servers: servers.optional(), mcpServers: servers.optional() }),
      answers: {
        200: '{mcp_servers, status}',
        409: 'config.yaml decides.',
        422: 'A server is not allowed or makes no sense.',
      },
    },
    async ({ c, body }) => {
      const written = body.mcp_servers ?? body.mcpServers;
      if (written === undefined) throw new ReindeerError('validation_failed', 'mcp_servers is missing.');
      await extensions.update(SECTION, (before) => {
        const next = unmaskServers(written as JsonObject, before);
        for (const [name, server] of Object.entries(next)) {
          // What the operator wrote by hand may stay as it is, and may be switched off.
          const old = (before as JsonObject | undefined)?.[name];
          const { enabled: _enabled, ...definition } = server as JsonObject;
          const { enabled: _before, ...defined } = (old ?? {}) as JsonObject;
          if (!isSame(definition, defined)) checkStdioPolicy(name, server as JsonObject, variables);
        }
        return next;
      });
      return c.json(await shown());
    },
  );
  route(
    api,
    {
      method: 'patch',
      path: '/mcp/config',
      tag,
      summary: 'Switches one MCP server on or off.',
      body: z.strictObject({ server_name: z.string().min(1).max(64), enabled: z.boolean() }),
      answers: { 200: '{mcp_servers, status}', 404: 'No such server.', 409: 'config.yaml decides.' },
    },
    async ({ c, body }) => {
      await extensions.update(SECTION, (before) => {
        const section = (before ?? {}) as JsonObject;
        const server = Object.hasOwn(section, body.server_name) ? section[body.server_name] : undefined;
        if (typeof server !== 'object' || server === null || Array.isArray(server))
          throw new ReindeerError('not_found', `There is no MCP server "${body.server_name}".`);
        return { ...section, [body.server_name]: { ...server, enabled: body.enabled } };
      });
      return c.json(await shown());
    },
  );
  route(
    api,
    {
      method: 'post',
      path: '/mcp/cache/reset',
      tag,
      summary: 'Closes all sessions and discovers the servers anew.',
      answers: { 200: '{success, message}' },
    },
    async ({ c }) => {
      await running.reset();
      running.start();
      return c.json({ success: true, message: 'All MCP sessions are closed; the servers are being discovered anew.' });
    },
  );
}
