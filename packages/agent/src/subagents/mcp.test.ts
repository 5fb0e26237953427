import { MemorySaver } from '@langchain/langgraph';
import { makeRun, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { ITEM_AGENT, ITEM_OPTIONS } from '../batches/names.ts';
import { defineMiddleware } from '../loop/middleware.ts';
import { readServers } from '../mcp/settings.ts';
import { mcpTool } from '../mcp/tool.ts';
import { delegatingAttempt, delegation, results, task } from '../test-support/delegation.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { drain } from '../test-support/run-loop.ts';

/** Tools of one server, which note in whose name they are called. */
function serverTools(...names: readonly string[]) {
  const [server] = readServers({ crm: { url: 'http://127.0.0.1:9/mcp' } }).servers;
  if (server === undefined) throw new Error('no server');
  const calls: string[] = [];
  const tools = names.map((name) => {
    const made = mcpTool(
      server,
      { name, description: `Does ${name}`, inputSchema: { type: 'object', properties: {} } },
      async (_server, tool, _args, { attempt }) => {
        calls.push(`${tool} for ${attempt.run.userId} in ${attempt.run.threadId}`);
        return { content: [{ type: 'text', text: `did ${tool}` }] };
      },
    );
    if (made === null) throw new Error(`no tool ${name}`);
    return made;
  });
  return { calls, mcp: { catalog: async () => ({ version: 'v1', tools }) } };
}
const call = (name: string, args: Record<string, unknown> = {}) => ({ calls: [{ name, args }] });

test(
  'a sub-agent and an item of a batch use the MCP sessions of the conversation that they work for',
  verifies('MCP-3'),
  async () => {
    const { calls, mcp } = serverTools('read');
    const world = delegation({
      lead: [call('crm_read'), { calls: [task('look')] }, { text: 'done' }],
      child: (messages) => (messages.some(({ type }) => type === 'tool') ? { text: 'looked' } : call('crm_read')),
      agent: { mcp },
    });
    await world.run({ attempt: delegatingAttempt() });
    const item = { subagent_type: 'general-purpose', user_id: 'default', thread_id: 'thread-1', model_name: null };
    const run = makeRun({
      runId: 'run-2',
      threadId: 'item-1',
      userId: 'batch',
      assistantId: ITEM_AGENT,
      request: { ...makeRun().request, context: { is_subagent: true, [ITEM_OPTIONS]: item } },
    });
    const attempt = recordedAttempt({ run });
    const graph = await world.agent.items?.forAttempt(attempt, new MemorySaver());
    if (graph == null) throw new Error('no graph for items');
    await drain(graph, { messages: [{ type: 'human', content: 'look' }] as never }, attempt);
    expect(calls).toEqual(Array(3).fill('read for default in thread-1'));
  },
);

test(
  'a sub-agent too sees names alone until it searches, and only those that its type may use',
  verifies('TOOL-12', 'MW-25'),
  async () => {
    const { calls, mcp } = serverTools('read', 'delete');
    const offered: string[][] = [];
    const world = delegation({
      lead: [{ calls: [task('look', 'reader')] }, { text: 'done' }],
      child: (messages) => {
        const answers = messages.filter(({ type }) => type === 'tool');
        const turns = [
          call('crm_read'),
          call('tool_search', { query: 'select:crm_read,crm_delete' }),
          call('crm_read'),
        ];
        return turns[answers.length] ?? { text: answers.map(({ text }) => text).join('\n') };
      },
      settings: {
        custom: { reader: { description: 'Reads', systemPrompt: 'Read.', disallowedTools: ['crm_delete'] } },
      },
      agent: {
        mcp,
        toolSearch: { enabled: true },
        middleware: [
          defineMiddleware({
            name: 'watch',
            wrapModelCall: (request, handler) => {
              if (request.systemMessage?.text.includes('sub-agent "reader"'))
                offered.push(
                  request.tools.map((one) => (one as { name: string }).name).filter((name) => /crm|search/.test(name)),
                );
              return handler(request);
            },
          }),
        ],
      },
    });
    const outcome = await world.run();
    expect(offered).toEqual([
      ['tool_search'],
      ['tool_search'],
      ['tool_search', 'crm_read'],
      ['tool_search', 'crm_read'],
    ]);
    expect(results(outcome)[0]?.text).toMatch(/crm_read is not available yet[\s\S]*"name":"crm_read"[\s\S]*did read/);
    expect(results(outcome)[0]?.text).not.toContain('"name":"crm_delete"');
    expect(calls).toEqual(['read for default in thread-1']);
  },
);
