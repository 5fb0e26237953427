import { AIMessage, type BaseMessage, HumanMessage, RemoveMessage, ToolMessage } from '@langchain/core/messages';
import {
  Annotation,
  Command,
  END,
  interrupt,
  MessagesAnnotation,
  REMOVE_ALL_MESSAGES,
  Send,
  START,
  StateGraph,
} from '@langchain/langgraph';
import { describe, expect, test } from 'vitest';
import { asCheckpointer, saverScene } from './fixture.ts';
import { ReindeerSaver } from './saver.ts';

const human = (id: string, content = id): HumanMessage => new HumanMessage({ id, content });
const ai = (id: string, content = id): AIMessage => new AIMessage({ id, content });
const at = (threadId: string) => ({ configurable: { thread_id: threadId }, durability: 'sync' as const });

type Reply = (messages: BaseMessage[]) => BaseMessage[];
const talk = (saver: ReindeerSaver, reply: Reply) =>
  new StateGraph(MessagesAnnotation)
    .addNode('model', ({ messages }) => ({ messages: reply(messages) }))
    .addEdge(START, 'model')
    .addEdge('model', END)
    .compile({ checkpointer: asCheckpointer(saver) });

describe.each(['sqlite', 'memory'] as const)('facts on %s', (kind) => {
  const scene = saverScene(kind);

  test('each message is one fact, in the order in which it entered, with its update and checkpoint', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    await talk(scene().saver(threadId, fence), () => [ai('a1')]).invoke({ messages: [human('h1')] }, at(threadId));
    const facts = await scene().facts(threadId);
    expect(
      facts.map(({ body }) =>
        body.kind === 'message' ? `message ${'id' in body.message && body.message.id}` : body.kind,
      ),
    ).toEqual(['run', 'run', 'checkpoint', 'message h1', 'checkpoint', 'update', 'message a1', 'checkpoint']);
    expect(facts.every(({ runId }) => runId === fence.runId)).toBe(true);
    expect(
      facts.map(({ body }) => (body.kind === 'checkpoint' ? [body.source, body.step] : null)).filter(Boolean),
    ).toEqual([
      ['input', -1],
      ['loop', 0],
      ['loop', 1],
    ]);
    expect(await scene().bodies(threadId, 'update')).toEqual([
      {
        kind: 'update',
        ns: '',
        node: 'model',
        taskId: expect.any(String),
        values: { messages: [{ type: 'ai', id: 'a1', content: 'a1' }] },
      },
    ]);
    const [first, second] = await scene().bodies(threadId, 'checkpoint');
    expect(second?.parentId).toBe(first?.checkpointId);
  });

  test('a replaced message is a fact again, a removed one says so, and one that returns is news', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const replies: BaseMessage[][] = [
      [ai('a1')],
      [ai('a1', 'better'), ai('a2')],
      [new RemoveMessage({ id: 'a1' })],
      [ai('a1', 'better')],
      [new RemoveMessage({ id: REMOVE_ALL_MESSAGES }), ai('sum')],
    ];
    const graph = talk(scene().saver(threadId, fence), () => replies.shift() ?? []);
    for (const turn of [1, 2, 3, 4, 5]) await graph.invoke({ messages: [human(`h${turn}`)] }, at(threadId));
    expect(await scene().messageLine(threadId)).toBe('h1 a1 h2 a1 a2 h3 -a1 h4 a1 h5 -h1 -h2 -a2 -h3 -h4 -a1 -h5 sum');
  });

  test('an input of many messages and one without an id', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const graph = talk(scene().saver(threadId, fence), () => [new AIMessage('no id yet')]);
    await graph.invoke({ messages: [human('h1'), human('h2'), human('h3')] }, at(threadId));
    const messages = await scene().bodies(threadId, 'message');
    expect(messages.map(({ message }) => ('content' in message ? message.content : null))).toEqual([
      'h1',
      'h2',
      'h3',
      'no id yet',
    ]);
    expect(messages.every(({ message }) => 'id' in message && typeof message.id === 'string')).toBe(true);
  });

  test('a saver of a run that was not told its thread takes the first', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const saver = new ReindeerSaver({ store: scene().a.checkpoints, fence, surroundings: scene().surroundings });
    await talk(saver, () => [ai('a1')]).invoke({ messages: [human('h1')] }, at(threadId));
    expect(await scene().messageLine(threadId)).toBe('h1 a1');
  });

  test('an interrupt takes the place of the one before, what a task returned never does', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const saver = scene().saver(threadId, fence);
    await talk(saver, () => [ai('a1')]).invoke({ messages: [human('h1')] }, at(threadId));
    const head = await saver.getTuple(at(threadId));
    if (head === undefined) throw new Error('no head');
    const path = '~__pregel_pull, model';
    for (const value of ['first', 'second']) {
      await saver.putWrites(head.config, [['__interrupt__', value]], 'task', path);
      await saver.putWrites(head.config, [['title', value]], 'other', path);
    }
    const tuple = await saver.getTuple(at(threadId));
    expect(tuple?.pendingWrites).toEqual([
      ['other', 'title', 'first'],
      ['task', '__interrupt__', 'second'],
    ]);
  });

  test('without a run there are no facts', async () => {
    const threadId = scene().thread();
    await talk(scene().saver(threadId, null), () => [ai('a1')]).invoke({ messages: [human('h1')] }, at(threadId));
    expect(await scene().facts(threadId)).toEqual([]);
  });

  test('parallel Sends: an update each, named by the Send or by the attempt', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const names = new Map<string, string>();
    const saver = scene().saver(threadId, fence, { taskName: (taskId) => names.get(taskId) });
    const graph = new StateGraph(MessagesAnnotation)
      .addNode('fan', () => ({}))
      .addNode('tool', async (state: unknown, config) => {
        const { n } = state as { n: number };
        if (n === 2) names.set(String(config.configurable?.__pregel_task_id), 'renamed');
        return { messages: [new ToolMessage({ id: `t${n}`, content: '', tool_call_id: `c${n}` })] };
      })
      .addEdge(START, 'fan')
      .addConditionalEdges('fan', () => [1, 2, 3].map((n) => new Send('tool', { n })), ['tool'])
      .addEdge('tool', END)
      .compile({ checkpointer: asCheckpointer(saver) });
    await graph.invoke({ messages: [human('h')] }, at(threadId));
    const updates = await scene().bodies(threadId, 'update');
    expect(updates.map(({ node, values }) => [node, JSON.stringify(values)?.match(/t\d/)?.[0]]).sort()).toEqual([
      ['fan', undefined],
      ['renamed', 't2'],
      ['tool', 't1'],
      ['tool', 't3'],
    ]);
    expect(await scene().messageLine(threadId)).toBe('h t1 t2 t3');
  });

  test('update values as clients know them: hidden channels left out, a channel written twice is a list', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const State = Annotation.Root({
      tags: Annotation<string[]>({ reducer: (a, b) => a.concat(b), default: () => [] }),
      seen: Annotation<Set<string>>(),
    });
    const graph = new StateGraph(State)
      .addNode('one', () => ({ tags: ['a'], seen: new Set(['x']) }))
      .addNode(
        'two',
        () => [new Command({ update: { tags: ['b'] } }), new Command({ update: { tags: ['c'] }, goto: END })],
        { ends: [END] },
      )
      .addEdge(START, 'one')
      .addEdge('one', 'two')
      .compile({ checkpointer: asCheckpointer(scene().saver(threadId, fence)) });
    await graph.invoke({ tags: [] }, at(threadId));
    expect((await scene().bodies(threadId, 'update')).map(({ node, values }) => [node, values])).toEqual([
      ['one', { tags: ['a'], seen: ['x'] }],
      ['two', [{ tags: ['b'] }, { tags: ['c'] }]],
    ]);
  });

  test('an interrupt is a fact, a second one of the same task in the next run as well', async () => {
    const threadId = scene().thread();
    const graphFor = (saver: ReindeerSaver) =>
      new StateGraph(MessagesAnnotation)
        .addNode('ask', () => {
          const name = interrupt({ question: 'name?' });
          const age = interrupt({ question: 'age?' });
          return { messages: [ai('a1', `${name} ${age}`)] };
        })
        .addEdge(START, 'ask')
        .addEdge('ask', END)
        .compile({ checkpointer: asCheckpointer(saver) });
    const inputs = [{ messages: [human('h1')] }, new Command({ resume: 'Ann' }), new Command({ resume: 7 })];
    for (const input of inputs) {
      const { fence } = await scene().running({ threadId });
      await graphFor(scene().saver(threadId, fence)).invoke(input as never, at(threadId));
      await scene().finalize(fence, 'success');
    }
    const asked = await scene().bodies(threadId, 'interrupt');
    expect(asked.map(({ interrupts }) => (interrupts as { value: unknown }[]).map(({ value }) => value))).toEqual([
      [{ question: 'name?' }],
      [{ question: 'age?' }],
    ]);
    expect(await scene().messageLine(threadId)).toBe('h1 a1');
    expect((await scene().bodies(threadId, 'update')).map(({ node }) => node)).toEqual(['ask']);
  });

  test("a sub-graph's own messages are facts of its namespace; its input is not news", async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const inner = new StateGraph(MessagesAnnotation)
      .addNode('think', () => ({ messages: [ai('inner')] }))
      .addEdge(START, 'think')
      .addEdge('think', END)
      .compile();
    const graph = new StateGraph(MessagesAnnotation)
      .addNode('before', () => ({ messages: [ai('outer')] }))
      .addNode('sub', inner)
      .addEdge(START, 'before')
      .addEdge('before', 'sub')
      .addEdge('sub', END)
      .compile({ checkpointer: asCheckpointer(scene().saver(threadId, fence)) });
    await graph.invoke({ messages: [human('h')] }, at(threadId));
    expect(await scene().messageLine(threadId)).toBe('h outer sub/inner inner');
  });

  test('a fork does not repeat what both branches share', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    let n = 0;
    const graph = talk(scene().saver(threadId, fence), () => [ai(`a${++n}`)]);
    await graph.invoke({ messages: [human('h1')] }, at(threadId));
    const fork = (await graph.getState(at(threadId))).parentConfig;
    await graph.invoke({ messages: [human('h2')] }, at(threadId));
    await graph.invoke(null, { ...at(threadId), configurable: { thread_id: threadId, ...fork?.configurable } });
    expect(await scene().messageLine(threadId)).toBe('h1 a1 h2 a2 a3');
  });

  test('a saver that did not load the parent tells the difference all the same', async () => {
    const threadId = scene().thread();
    const { fence } = await scene().running({ threadId });
    const graph = talk(scene().saver(threadId, fence), () => [ai('a1')]);
    await graph.invoke({ messages: [human('h1')] }, at(threadId));
    const head = await scene().saver(threadId, fence).getTuple(at(threadId));
    if (head === undefined) throw new Error('no head');
    const fresh = scene().saver(threadId, fence);
    const messages = [...(head.checkpoint.channel_values.messages as BaseMessage[]), ai('a2')];
    const version = fresh.getNextVersion(head.checkpoint.channel_versions.messages);
    await fresh.put(
      head.config,
      {
        ...head.checkpoint,
        id: `${head.checkpoint.id.slice(0, -1)}z`,
        channel_values: { messages },
        channel_versions: { messages: version } as never,
      },
      { source: 'update', step: 2, parents: {} },
      { messages: version },
    );
    expect(await scene().messageLine(threadId)).toBe('h1 a1 a2');
  });
});
