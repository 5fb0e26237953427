// The graph that LangGraph's dev server serves in the comparison: one call of the bench's model. `plain.ts` is the same for the product.
import { MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { StepModel } from './model.ts';

const model = new StepModel({ steps: 0, pieces: 20 });

export const graph = new StateGraph(MessagesAnnotation)
  .addNode('model', async (state, config) => ({ messages: [await model.invoke(state.messages, config)] }))
  .addEdge(START, 'model')
  .compile();
