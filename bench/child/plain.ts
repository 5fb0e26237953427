// The graph of `langgraph/agent.ts` for the product: one call of the model, its tokens told as they come.
import { randomUUID } from 'node:crypto';
import { AIMessage, type BaseMessage } from '@langchain/core/messages';
import { Annotation, messagesStateReducer, START, StateGraph } from '@langchain/langgraph';
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import type { AttemptContext, Graph, GraphFactory } from '@reindeer/protocol';
import type { StepModel } from './model.ts';

const State = Annotation.Root({
  messages: Annotation<BaseMessage[]>({ reducer: messagesStateReducer, default: () => [] }),
});

export function plainAgent(model: StepModel): GraphFactory {
  const build = (attempt: AttemptContext | null, saver: unknown): Graph => {
    const graph = new StateGraph(State)
      .addNode('model', async ({ messages }) => {
        const id = randomUUID();
        let text = '';
        for await (const { content } of await model.stream(messages)) {
          text += String(content);
          attempt?.tokens.push({ type: 'AIMessageChunk', id, content: String(content) }, { langgraph_node: 'model' });
        }
        return { messages: [new AIMessage({ id, content: text })] };
      })
      .addEdge(START, 'model')
      .compile({ checkpointer: saver as BaseCheckpointSaver });
    return Object.assign(graph as unknown as Graph, { stateKeys: ['messages'] });
  };
  return {
    assistantId: 'lead_agent',
    name: 'plain',
    description: 'One call of a model.',
    forAttempt: async (attempt, saver) => build(attempt, saver),
    forState: async (saver) => build(null, saver),
  };
}
