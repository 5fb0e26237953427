import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { Annotation, Command, END, interrupt, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { openSqlite } from '@reindeer/database';
import { T0, testSurroundings, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { asCheckpointer, SaverScene } from './fixture.ts';
import type { ReindeerSaver } from './saver.ts';

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  /** As a middleware contributes it. */
  counters: Annotation<Record<string, number>>({ reducer: (a, b) => ({ ...a, ...b }), default: () => ({}) }),
});

function build(saver: ReindeerSaver) {
  return new StateGraph(State)
    .addNode('count', ({ messages }) => ({ counters: { [`n${messages.length}`]: messages.length } }))
    .addNode('ask', ({ messages }) => {
      const answer = interrupt({ about: messages.at(-1)?.id }) as string;
      return { messages: [new AIMessage({ id: `a${messages.length}`, content: answer })] };
    })
    .addEdge(START, 'count')
    .addEdge('count', 'ask')
    .addEdge('ask', END)
    .compile({ checkpointer: asCheckpointer(saver) });
}

test(
  'a run that is taken back leaves the thread as it was, also for a process that opens it later',
  verifies('RB-01', 'RB-03', 'RB-04'),
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'reindeer-rollback-'));
    const threadId = 'thread';
    const config = { configurable: { thread_id: threadId }, durability: 'sync' as const };
    const open = async (): Promise<SaverScene> => {
      const stores = await openSqlite({ folder, surroundings: testSurroundings() });
      return new SaverScene({ a: stores, b: stores, close: () => stores.close() });
    };
    const look = async (scene: SaverScene) => {
      const state = await build(scene.saver(threadId, null)).getState(config);
      const history = await scene.a.checkpoints.list({
        threadId,
        ns: null,
        checkpointId: null,
        before: null,
        limit: null,
        filter: {},
      });
      return {
        values: {
          ...state.values,
          messages: (state.values.messages as BaseMessage[]).map(({ id, content }) => [id, content]),
        },
        next: state.next,
        asked: state.tasks.map(({ interrupts }) => interrupts.map(({ value }) => value)),
        history,
      };
    };
    try {
      let scene = await open();
      const first = await scene.running({ threadId, runId: 'first' });
      await build(scene.saver(threadId, first.fence)).invoke(
        { messages: [new HumanMessage({ id: 'h1', content: 'hi' })] },
        config,
      );
      await scene.finalize(first.fence, 'success');
      const before = await look(scene);
      expect(before.asked).toEqual([[{ about: 'h1' }]]);

      const second = await scene.running({ threadId, runId: 'second' });
      const graph = build(scene.saver(threadId, second.fence));
      await graph.invoke(new Command({ resume: 'fine' }) as never, config);
      await graph.invoke({ messages: [new HumanMessage({ id: 'h2', content: 'more' })] }, config);
      const after = await look(scene);
      expect(after.values.messages).toEqual([
        ['h1', 'hi'],
        ['a1', 'fine'],
        ['h2', 'more'],
      ]);

      const head = before.history.find(({ ns }) => ns === '')?.checkpointId ?? '';
      const answer = await scene.a.checkpoints.rollback({ fence: second.fence, threadId, checkpointId: head, now: T0 });
      expect(answer).toEqual({ outcome: 'ok' });
      expect(await look(scene)).toEqual(before);
      await scene.finalize(second.fence, 'interrupted');
      await scene.a.close();

      scene = await open();
      expect(await look(scene)).toEqual(before);
      // The question is still open and can be answered.
      const third = await scene.running({ threadId, runId: 'third' });
      await build(scene.saver(threadId, third.fence)).invoke(new Command({ resume: 'at last' }) as never, config);
      expect((await look(scene)).values.messages).toEqual([
        ['h1', 'hi'],
        ['a1', 'at last'],
      ]);
      // What the run that was taken back had said is news when it is said again.
      await build(scene.saver(threadId, third.fence)).invoke(
        { messages: [new HumanMessage({ id: 'h2', content: 'more' })] },
        config,
      );
      expect(await scene.messageLine(threadId)).toBe('h1 a1 h2 a1 h2');
      await scene.a.close();
    } finally {
      await rm(folder, { recursive: true });
    }
  },
);
