// One run of many steps: CPU of the whole process (all threads) at each model call. Arguments: product|langgraph STEPS
import { type AIMessage, type BaseMessage, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { END, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { StepModel, TOOL_RESULT } from './model.ts';
import { openProduct, turn } from './product.ts';

const [kind, count] = process.argv.slice(2);
const steps = Number(count);
const marks: number[] = [];
const mark = () => {
  const { user, system } = process.cpuUsage();
  marks.push((user + system) / 1000);
};

/** Bytes of the finished conversation as JSON: what has to be kept in any case. */
let payload = 0;
let stored = { rows: 0, file: 0 };
let tables: unknown = null;

if (kind === 'product') {
  const warm = new StepModel({ steps: 60 });
  const first = await openProduct(warm);
  await turn(first, 'warm-up', 'go');
  await first.close();
  const model = new StepModel({ steps });
  const product = await openProduct(model);
  model.onCall = mark;
  await turn(product, 'measured', 'go');
  const state = await product.runtime.threads.state({
    threadId: 'measured',
    userId: 'default',
    checkpointId: null,
    subgraphs: false,
  });
  payload = JSON.stringify(state?.values.messages).length;
  const stats = await product.stores.stats();
  tables = stats.tables;
  stored = { rows: stats.rowBytes, file: await product.close() };
} else {
  // The floor: LangGraph's own two-node loop over the same model and tool, nothing persisted.
  const model = new StepModel({ steps: 60 });
  const build = (used: StepModel) =>
    new StateGraph(MessagesAnnotation)
      .addNode('model', async (state) => ({ messages: [await used.invoke(state.messages)] }))
      .addNode('tools', async (state) => ({
        messages: ((state.messages.at(-1) as AIMessage).tool_calls ?? []).map(
          (call) => new ToolMessage({ content: TOOL_RESULT, tool_call_id: call.id ?? '' }),
        ),
      }))
      .addEdge(START, 'model')
      .addConditionalEdges(
        'model',
        (state: { messages: BaseMessage[] }) =>
          (state.messages.at(-1) as AIMessage).tool_calls?.length ? 'tools' : END,
        ['tools', END],
      )
      .addEdge('tools', 'model')
      .compile();
  await build(model).invoke({ messages: [new HumanMessage('go')] }, { recursionLimit: 1000 });
  const measured = new StepModel({ steps });
  measured.onCall = mark;
  await build(measured).invoke({ messages: [new HumanMessage('go')] }, { recursionLimit: 1000 });
}
process.stdout.write(`${JSON.stringify({ marks, payload, stored, tables })}\n`);
process.exit(0);
