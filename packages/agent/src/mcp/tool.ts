import { createHash } from 'node:crypto';
import { DynamicStructuredTool, type StructuredToolInterface } from '@langchain/core/tools';
import type { SandboxFiles } from '@reindeer/protocol';
import { whole } from '../history/well-formed.ts';
import { type AttemptScope, scopeOf } from '../loop/scope.ts';
import { masked } from '../tools/text.ts';
import type { ListedTool } from './listed-tool.ts';
import { type MappedResult, mapResult } from './results.ts';
import type { McpServer } from './settings.ts';

/** Calls the server's tool in the session of a conversation. */
export type CallServer = (
  server: McpServer,
  tool: string,
  args: Record<string, unknown>,
  scope: AttemptScope,
  signal: AbortSignal | undefined,
) => Promise<Parameters<typeof mapResult>[0]>;

/** Providers refuse longer names. */
const MAX_NAME = 64;
const MAX_DESCRIPTION = 4_000;
const MAX_SCHEMA = 64 * 1024;
const NAME = /^[A-Za-z0-9_-]+$/;

/** What the model calls the tool; null for a name that no provider would take, and that could smuggle text into the prompt (MCP-1). */
export function toolName(server: McpServer, raw: string): string | null {
  if (!NAME.test(raw)) return null;
  const name = server.prefix ? `${server.name}_${raw}` : raw;
  if (name.length <= MAX_NAME) return name;
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 8);
  return `${name.slice(0, MAX_NAME - 9)}_${digest}`;
}

/** null for a tool that cannot be offered: its name, or a description of its arguments without an end. */
export function mcpTool(server: McpServer, tool: ListedTool, call: CallServer): StructuredToolInterface | null {
  const name = toolName(server, tool.name);
  if (name === null || JSON.stringify(tool.inputSchema).length > MAX_SCHEMA) return null;
  const made = new DynamicStructuredTool({
    name,
    description: (tool.description ?? tool.title ?? tool.name).slice(0, MAX_DESCRIPTION).toWellFormed(),
    schema: whole(tame(tool.inputSchema)) as object,
    // What a server says of its tools is no ground to run one twice: after a crash the outcome is unknown.
    metadata: { repeatable: false, resumable: false, abortable: true },
    responseFormat: 'content_and_artifact',
    func: async (args: unknown, _manager: unknown, config: unknown) => {
      const scope = scopeOf(config as Parameters<typeof scopeOf>[0]);
      const { signal, toolCallId, task } = config as {
        signal?: AbortSignal;
        toolCallId?: string;
        task?: { messageId: string; index: number };
      };
      const result = await call(server, tool.name, args as Record<string, unknown>, scope, signal);
      const hidden = (await scope.access?.hidden()) ?? [];
      const mapped: MappedResult = await mapResult(
        result,
        fileName(name, toolCallId ?? task?.messageId ?? ''),
        () => filesOf(scope),
        (text, cut) => masked(text, hidden, cut),
      );
      return [mapped.text, mapped.structured === null ? undefined : { structured_content: mapped.structured }];
    },
  } as never);
  return made as unknown as StructuredToolInterface;
}

/**
 * Without the expressions that could take long: arguments are checked with them on the server's own thread. The MCP server checks again.
 */
function tame(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(tame);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).flatMap(([key, value]): [string, unknown][] => {
      if (key === 'pattern' && typeof value === 'string') return isQuick(value) ? [[key, value]] : [];
      if (
        key === 'patternProperties' &&
        typeof value === 'object' &&
        value !== null &&
        !Object.keys(value).every(isQuick)
      )
        return [];
      return [[key, tame(value)]];
    }),
  );
}

/** Anchored, no repeated group, and one repetition of no fixed count: linear in the text. */
const isQuick = (pattern: string): boolean =>
  pattern.length <= 500 &&
  pattern.startsWith('^') &&
  !/\)[*+?{]/.test(pattern) &&
  (pattern.replace(/\{\d+\}/g, '').match(/[*+{]/g) ?? []).length <= 1;

/** Call ids are a provider's: not every one is fit for a file. */
function fileName(tool: string, callId: string): string {
  return `${tool}-${createHash('sha256').update(callId).digest('hex').slice(0, 12)}`;
}

async function filesOf(scope: AttemptScope): Promise<SandboxFiles | null> {
  return scope.leases === null ? null : (await scope.sandbox()).files;
}
