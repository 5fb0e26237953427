import { AIMessage, type BaseMessage, HumanMessage, RemoveMessage, ToolMessage } from '@langchain/core/messages';
import {
  Annotation,
  Command,
  END,
  interrupt,
  MemorySaver,
  MessagesAnnotation,
  REMOVE_ALL_MESSAGES,
  Send,
  START,
  StateGraph,
} from '@langchain/langgraph';
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import { describe, expect, test } from 'vitest';
import { asCheckpointer, saverScene } from './fixture.ts';

/**
 * The same long session, once with LangGraph's own `MemorySaver` and once with ours, a fresh saver before every step as after a
 * restart: interrupts, parallel tools, sub-graphs, forks, removals, edits from outside. Everything that a client
 * can see of the thread must be equal.
 */

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  notes: Annotation<string[]>({ reducer: (a, b) => a.concat(b), default: () => [] }),
  seen: Annotation<Record<string, unknown>>(),
});

const callsOf = (n: number) =>
  [1, 2, 3].map((i) => ({ id: `c${n}-${i}`, name: 'tool', args: { i }, type: 'tool_call' as const }));

function build(checkpointer: BaseCheckpointSaver, finishFirst: readonly number[]) {
  const inner = new StateGraph(State)
    .addNode('deep', ({ messages }) => {
      const answer = messages.length > 3 ? (interrupt({ deep: messages.length }) as string) : 'no question';
      return { messages: [new AIMessage({ id: `deep-${messages.length}`, content: answer })] };
    })
    .addEdge(START, 'deep')
    .addEdge('deep', END)
    .compile();
  return new StateGraph(State)
    .addNode('model', ({ messages }) => {
      const n = messages.length;
      return {
        messages: [new AIMessage({ id: `ai-${n}`, content: 'thinking', tool_calls: n % 2 === 1 ? callsOf(n) : [] })],
        notes: [`model at ${n}`],
      };
    })
    .addNode('tool', async (state: unknown) => {
      const { id, args } = state as { id: string; args: { i: number } };
      // They end in another order than they were asked for.
      for (let turns = finishFirst[args.i - 1] ?? 0; turns > 0; turns -= 1) await Promise.resolve();
      return {
        messages: [new ToolMessage({ id: `result-${id}`, content: `${args.i}`, tool_call_id: id })],
        notes: [id],
      };
    })
    .addNode('review', ({ messages }) => {
      const verdict = interrupt({ review: messages.at(-1)?.id }) as string;
      if (verdict === 'drop') return { messages: [new RemoveMessage({ id: String(messages.at(-1)?.id) })] };
      if (verdict === 'clear') {
        const all = new RemoveMessage({ id: REMOVE_ALL_MESSAGES });
        return { messages: [all, new HumanMessage({ id: 'summary', content: 'all before' })] };
      }
      return { seen: { verdict, when: null, list: [undefined] } };
    })
    .addNode('sub', inner)
    .addEdge(START, 'model')
    .addConditionalEdges(
      'model',
      ({ messages }) => (messages.at(-1) as AIMessage).tool_calls?.map((call) => new Send('tool', call)) ?? [],
      ['tool'],
    )
    .addEdge('model', 'review')
    .addEdge('review', 'sub')
    .addEdge('sub', END)
    .compile({ checkpointer });
}

type Graph = ReturnType<typeof build>;
type Step = (graph: Graph, config: { configurable: { thread_id: string } }) => Promise<unknown>;
const say = (id: string) => ({ messages: [new HumanMessage({ id, content: id })] });
const durable = { durability: 'sync' as const };

const SESSION: readonly Step[] = [
  (graph, config) => graph.invoke(say('h1'), { ...config, ...durable }),
  (graph, config) => graph.invoke(new Command({ resume: 'fine' }) as never, { ...config, ...durable }),
  (graph, config) => graph.invoke(new Command({ resume: 'deep answer' }) as never, { ...config, ...durable }),
  (graph, config) => graph.invoke(say('h2'), { ...config, ...durable }),
  (graph, config) => graph.invoke(new Command({ resume: 'drop' }) as never, { ...config, ...durable }),
  (graph, config) =>
    graph.updateState(
      config,
      { messages: [new HumanMessage({ id: 'h1', content: 'edited' })], notes: ['edit'] },
      'model',
    ),
  (graph, config) => graph.invoke(null, { ...config, ...durable }),
  async (graph, config) => {
    // A fork from the middle of the history.
    const history = [];
    for await (const snapshot of graph.getStateHistory(config)) history.push(snapshot);
    const middle = history.findLast(({ next }) => next.includes('review'));
    return graph.invoke(null, { ...durable, configurable: { ...middle?.config.configurable, ...config.configurable } });
  },
  (graph, config) => graph.invoke(new Command({ resume: 'clear' }) as never, { ...config, ...durable }),
  (graph, config) => graph.invoke(say('h3'), { ...config, ...durable }),
  (graph, config) => graph.invoke(new Command({ resume: 'fine' }) as never, { ...config, ...durable }),
];

const message = (value: unknown): unknown => {
  const { id, content } = value as BaseMessage;
  const calls = (value as AIMessage).tool_calls;
  return [(value as BaseMessage).getType(), id, content, calls];
};

/** Everything that can be seen of the thread, with ids of checkpoints numbered in the order of their appearance. */
async function look(graph: Graph, config: { configurable: { thread_id: string } }): Promise<unknown> {
  const numbers = new Map<unknown, number>();
  const number = (id: unknown): number | null => {
    if (id === undefined) return null;
    if (!numbers.has(id)) numbers.set(id, numbers.size);
    return numbers.get(id) ?? null;
  };
  const seen: unknown[] = [];
  for await (const snapshot of graph.getStateHistory(config)) {
    const { messages = [], ...values } = snapshot.values as { messages?: unknown[] };
    seen.push({
      messages: messages.map(message),
      values,
      next: snapshot.next,
      id: number(snapshot.config.configurable?.checkpoint_id),
      parent: number(snapshot.parentConfig?.configurable?.checkpoint_id),
      source: snapshot.metadata?.source,
      step: snapshot.metadata?.step,
      tasks: snapshot.tasks.map(({ name, interrupts, error }) => ({
        name,
        interrupts: interrupts.map(({ value }) => value),
        error,
      })),
    });
  }
  const head = await graph.getState(config, { subgraphs: true });
  return {
    seen,
    head: {
      next: head.next,
      tasks: head.tasks.map(({ name, interrupts }) => [name, interrupts.map(({ value }) => value)]),
    },
  };
}

/** Answers what the thread looked like after each step. */
async function play(
  threadId: string,
  saverFor: () => BaseCheckpointSaver,
  finishFirst: readonly number[],
): Promise<unknown[]> {
  const config = { configurable: { thread_id: threadId } };
  const pictures: unknown[] = [];
  for (const step of SESSION) {
    await step(build(saverFor(), finishFirst), config);
    pictures.push(await look(build(saverFor(), finishFirst), config));
  }
  return pictures;
}

describe.each(['sqlite', 'memory'] as const)('a session on %s', (kind) => {
  const scene = saverScene(kind);

  test.each([
    ['in the order of the calls', [1, 5, 9]],
    ['last call first', [9, 5, 1]],
  ])('is the same as with MemorySaver, tools ending %s', async (_name, finishFirst) => {
    const threadId = scene().thread();
    const stock = new MemorySaver();
    const expected = await play(threadId, () => stock, finishFirst);
    const own = await play(threadId, () => asCheckpointer(scene().saver(threadId, null)), finishFirst);
    expect(own).toEqual(expected);
  });

  test('is the same under a run, where facts are written', async () => {
    const threadId = scene().thread();
    const stock = new MemorySaver();
    const expected = await play(threadId, () => stock, []);
    const { fence } = await scene().running({ threadId });
    expect(await play(threadId, () => asCheckpointer(scene().saver(threadId, fence)), [])).toEqual(expected);
    const parallel = (await scene().bodies(threadId, 'message')).map((body) =>
      'id' in body.message ? body.message.id : null,
    );
    expect(parallel.slice(0, 5)).toEqual(['h1', 'ai-1', 'result-c1-1', 'result-c1-2', 'result-c1-3']);
  });
});
