import { Annotation, Command, END, interrupt, MemorySaver, START, StateGraph } from '@langchain/langgraph';
import type { GraphSnapshot } from '@reindeer/protocol';
import { expect, test } from 'vitest';
import { toStateSnapshot } from './snapshot.ts';

test('a node that asks once more is next, until it has its answer', async () => {
  const graph = new StateGraph(Annotation.Root({ answer: Annotation<string>() }))
    .addNode('ask', () => {
      let answer: string = interrupt('yes or no?');
      while (answer !== 'yes' && answer !== 'no') answer = interrupt('only yes or no');
      return { answer };
    })
    .addEdge(START, 'ask')
    .addEdge('ask', END)
    .compile({ checkpointer: new MemorySaver() });
  const config = { configurable: { thread_id: 'thread-1' } };
  const look = async () => toStateSnapshot((await graph.getState(config)) as unknown as GraphSnapshot);

  await graph.invoke({}, config);
  expect(await look()).toMatchObject({ next: ['ask'], interrupts: [{ value: 'yes or no?' }] });
  await graph.invoke(new Command({ resume: 'perhaps' }), config);
  expect(await look()).toMatchObject({ next: ['ask'], interrupts: [{ value: 'only yes or no' }] });
  await graph.invoke(new Command({ resume: 'yes' }), config);
  expect(await look()).toMatchObject({ next: [], interrupts: [], values: { answer: 'yes' } });
});
