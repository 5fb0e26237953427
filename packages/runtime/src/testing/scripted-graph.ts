import { AIMessage, type BaseMessage, ToolMessage, type UsageMetadata } from '@langchain/core/messages';
import { Annotation, END, messagesStateReducer, START, StateGraph } from '@langchain/langgraph';
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import type { AttemptContext, Graph, GraphFactory, JsonObject } from '@reindeer/protocol';

export const ScriptState = Annotation.Root({
  messages: Annotation<BaseMessage[]>({ reducer: messagesStateReducer, default: () => [] }),
  title: Annotation<string>(),
});

export interface ToolCall {
  readonly name: string;
  readonly args?: JsonObject;
}

/** What the script's model says next: tokens first, then tool calls. */
export interface Turn {
  readonly text: string;
  /** The beginning of the text that the script has pushed as tokens itself. */
  readonly streamed?: string;
  readonly calls?: readonly ToolCall[];
  /** What the message says of its cost; absent = nothing. */
  readonly usage?: { readonly inputTokens: number; readonly outputTokens: number };
}

export interface Script {
  /** The model: called with the messages so far; `context` is null outside a run. */
  model(messages: readonly BaseMessage[], context: AttemptContext): Promise<Turn> | Turn;
  tool?(call: ToolCall, context: AttemptContext): Promise<string>;
}

/** The n-th answer of the model within the newest turn of the user gets this id: stable per attempt, new for each attempt. */
const idOf = (context: AttemptContext, messages: readonly BaseMessage[]): string =>
  `ai-${context.run.runId.slice(0, 8)}-${context.attempt}-${messages.length}`;

/**
 * A small agent on LangGraph for tests of the runtime: model node and tools node, journalled tools, tokens by the word. The real one is
 * another package's; this one shows that the runtime needs nothing but the ports.
 */
export function scriptedFactory(script: Script, assistantId = 'scripted'): GraphFactory {
  const build = (context: AttemptContext | null, saver: unknown): Graph => {
    const name = (config: { configurable?: Record<string, unknown> }, node: string) => {
      const task = config.configurable?.__pregel_task_id;
      if (typeof task === 'string') context?.nameTask(task, node);
    };
    const graph = new StateGraph(ScriptState)
      .addNode('model', async (state, config) => {
        if (context === null) throw new Error('the model works inside runs only');
        const id = idOf(context, state.messages);
        const turn = await context.effects.track('model', async () => script.model(state.messages, context));
        for (const word of turn.text.slice(turn.streamed?.length ?? 0).split(/(?<= )/)) {
          context.tokens.push({ type: 'AIMessageChunk', id, content: word }, { langgraph_node: 'model' });
        }
        context.countUsage({ inputTokens: 10, outputTokens: 2, model: 'scripted' });
        name(config, 'model');
        const calls = (turn.calls ?? []).map((call, index) => ({
          id: `call-${id}-${index}`,
          name: call.name,
          args: call.args ?? {},
          type: 'tool_call' as const,
        }));
        const usage = usageOf(turn);
        const fields = { id, content: turn.text, tool_calls: calls };
        return {
          messages: [
            usage === null ? new AIMessage(fields) : new AIMessage({ ...fields, usage_metadata: usage as never }),
          ],
        };
      })
      .addNode('tools', async (state, config) => {
        if (context === null) throw new Error('tools work inside runs only');
        const last = state.messages.at(-1) as AIMessage;
        const results = await Promise.all(
          (last.tool_calls ?? []).map((call, index) => runTool(script, context, last.id ?? '', index, call)),
        );
        name(config, 'tools');
        return { messages: results };
      })
      .addEdge(START, 'model')
      .addConditionalEdges('model', (state) => {
        const last = state.messages.at(-1) as AIMessage;
        return (last.tool_calls ?? []).length > 0 ? 'tools' : END;
      })
      .addEdge('tools', 'model')
      .compile({ checkpointer: saver as BaseCheckpointSaver, name: assistantId });
    return Object.assign(graph as unknown as Graph, { stateKeys: ['messages', 'title'] });
  };
  return {
    assistantId,
    name: assistantId,
    description: 'a scripted agent for tests',
    forAttempt: async (context, saver) => build(context, saver),
    forState: async (saver) => build(null, saver),
  };
}

function usageOf({ usage }: Turn): UsageMetadata | null {
  if (usage === undefined) return null;
  const { inputTokens, outputTokens } = usage;
  return { input_tokens: inputTokens, output_tokens: outputTokens, total_tokens: inputTokens + outputTokens };
}

async function runTool(
  script: Script,
  context: AttemptContext,
  messageId: string,
  index: number,
  call: { id?: string; name: string; args: Record<string, unknown> },
): Promise<ToolMessage> {
  const toolCallId = call.id ?? null;
  const message = (content: string) =>
    new ToolMessage({ id: `tool-${messageId}-${index}`, tool_call_id: toolCallId ?? '', name: call.name, content });
  const begun = await context.journal.begin({ messageId, index, toolCallId, name: call.name, again: false });
  if (begun.outcome === 'finished') return context.journal.unpack(begun.result) as ToolMessage;
  if (begun.outcome === 'unfinished') return message('unknown outcome');
  const text = await context.effects.track(call.name, async () => {
    return (await script.tool?.({ name: call.name, args: call.args as JsonObject }, context)) ?? 'done';
  });
  return (await context.journal.finish({ messageId, index, outcome: 'ok', result: message(text) })) as ToolMessage;
}
