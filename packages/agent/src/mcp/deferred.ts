import { ToolMessage } from '@langchain/core/messages';
import type { StructuredToolInterface } from '@langchain/core/tools';
import { Command } from '@langchain/langgraph';
import { z } from 'zod';
import { defineMiddleware, type Middleware, type State } from '../loop/middleware.ts';
import { DEFERRED_TOOLS } from '../middleware/order.ts';
import { escapedText } from '../safety/tags.ts';
import { defineTool } from '../tools/define.ts';
import { metaOfText, TOOL_META } from '../tools/tool-meta.ts';
import type { McpCatalog } from './servers.ts';

export interface ToolSearchSettings {
  readonly enabled: boolean;
}

export const TOOL_SEARCH = 'tool_search';
/** Hits of a search by words. */
const MAX_HITS = 5;
const MAX_SELECTED = 50;
/** Characters of a description that an expression is matched with: its cost grows with the square. */
const MAX_MATCHED = 300;
/** Longest list of names in the prompt, in characters. */
const MAX_NAMES = 20_000;

export interface DeferredTools {
  readonly tool: StructuredToolInterface;
  readonly middleware: Middleware;
  /** For the prompt: the names alone. */
  readonly section: string;
}

/**
 * Keeps the schemas of MCP tools from the model until it searches for them (TOOL-12): hundreds of tools then cost their names only. What was
 * found is kept in the thread's state under the version of the tools; with other tools it counts no more.
 */
export function deferTools(catalog: McpCatalog): DeferredTools {
  const byName = new Map(catalog.tools.map((tool) => [tool.name, tool]));
  const lists = new WeakMap<readonly unknown[], Map<string, readonly unknown[]>>();
  const promoted = (state: State): ReadonlySet<string> => {
    const found = state.promoted as { catalog_hash?: unknown; names?: unknown } | null | undefined;
    if (found?.catalog_hash !== catalog.version || !Array.isArray(found.names)) return new Set();
    return new Set(found.names.filter((name): name is string => typeof name === 'string'));
  };
  const names = [...byName.keys()].map(escapedText).join(', ');
  return {
    section: `<available-deferred-tools>
These tools exist as well, but their parameters must be looked up with ${TOOL_SEARCH} before they can be called: ${names.slice(0, MAX_NAMES)}
</available-deferred-tools>`,
    middleware: defineMiddleware({
      name: DEFERRED_TOOLS,
      wrapModelCall(request, handler) {
        const shown = promoted(request.state);
        const known = lists.get(request.tools) ?? new Map<string, readonly unknown[]>();
        lists.set(request.tools, known);
        const key = [...shown].sort().join(' ');
        const tools =
          known.get(key) ??
          request.tools.filter((tool) => {
            const { name = '' } = tool as { name?: string };
            return byName.get(name) !== tool || shown.has(name);
          });
        if (known.size < 64) known.set(key, tools);
        return handler({ ...request, tools });
      },
      async wrapToolCall(request, handler) {
        const { name, id } = request.toolCall;
        if (!byName.has(name) || request.tool !== byName.get(name) || promoted(request.state).has(name))
          return handler(request);
        return new ToolMessage({
          content: `Error: ${name} is not available yet. Call ${TOOL_SEARCH} with "select:${name}" first, then call it as its schema says.`,
          tool_call_id: id ?? '',
          name,
          status: 'error',
          additional_kwargs: { [TOOL_META]: metaOfText('not found', 'error') },
        });
      },
    }),
    tool: defineTool({
      name: TOOL_SEARCH,
      description: `Looks up the parameters of tools that are not shown yet, and makes them callable. "select:a,b" takes exactly these; "+word more words" takes those with the word in their name, the best fitting first; anything else is searched for in names and descriptions. At most ${MAX_HITS} hits, except for "select:".`,
      schema: z.object({ query: z.string().trim().min(1).max(1_000) }),
      repeatable: true,
      async run({ query }, { callId }) {
        const found = search([...byName.values()], query);
        if (found.length === 0) return `No tool fits "${query}". The names are listed in your instructions.`;
        const schemas = found.map((tool) => ({
          name: tool.name,
          description: tool.description,
          parameters: tool.schema,
        }));
        return new Command({
          update: {
            promoted: { catalog_hash: catalog.version, names: found.map((tool) => tool.name) },
            messages: [new ToolMessage({ content: JSON.stringify(schemas), tool_call_id: callId, name: TOOL_SEARCH })],
          },
        });
      },
    }),
  };
}

export function search(tools: readonly StructuredToolInterface[], query: string): readonly StructuredToolInterface[] {
  const selected = /^select:(.*)$/s.exec(query)?.[1];
  if (selected !== undefined) {
    const names = new Set(selected.split(',').map((name) => name.trim()));
    return tools.filter((tool) => names.has(tool.name)).slice(0, MAX_SELECTED);
  }
  const required = /^\+(\S+)\s*(.*)$/s.exec(query);
  if (required !== null) {
    const word = (required[1] ?? '').toLowerCase();
    return ranked(
      tools.filter((tool) => tool.name.toLowerCase().includes(word)),
      (required[2] ?? '')
        .toLowerCase()
        .split(/\s+/)
        .filter((part) => part !== ''),
    );
  }
  const expression = safeExpression(query);
  const hits = tools.filter(
    (tool) => expression.test(tool.name) || expression.test(tool.description.slice(0, MAX_MATCHED)),
  );
  if (hits.length > 0) return hits.slice(0, MAX_HITS);
  // Words that do not stand together.
  const words = query
    .toLowerCase()
    .split(/\s+/)
    .filter((part) => part.length > 2);
  return ranked(
    tools.filter((tool) => score(tool, words) > 0),
    words,
  );
}

const score = (tool: StructuredToolInterface, words: readonly string[]): number => {
  const [name, description] = [tool.name.toLowerCase(), tool.description.toLowerCase()];
  return words.reduce((sum, word) => sum + (name.includes(word) ? 2 : 0) + (description.includes(word) ? 1 : 0), 0);
};

function ranked(
  tools: readonly StructuredToolInterface[],
  words: readonly string[],
): readonly StructuredToolInterface[] {
  return [...tools].sort((a, b) => score(b, words) - score(a, words) || (a.name < b.name ? -1 : 1)).slice(0, MAX_HITS);
}

/**
 * A regular expression from a model runs on the server's own thread: only those without groups and with one repetition. Two cost the cube of a
 * description's length, with hundreds of tools that is seconds. Everything else is searched for as it is written.
 */
function safeExpression(query: string): RegExp {
  const simple = /^[\w\s|.^$*+?-]+$/.test(query) && (query.match(/[*+?]/g) ?? []).length <= 1;
  const literal = query.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  try {
    return new RegExp(simple ? query : literal, 'i');
  } catch {
    return new RegExp(literal, 'i');
  }
}
