import { AIMessage, HumanMessage } from '@langchain/core/messages';
import { END, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import type { CheckpointStore } from '@reindeer/protocol';
import { T0, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { asCheckpointer, type SaverScene, saverScene } from './fixture.ts';
import type { ReindeerSaver } from './saver.ts';

const at = (threadId: string) => ({ configurable: { thread_id: threadId }, durability: 'sync' as const });
const input = { messages: [new HumanMessage({ id: 'h', content: 'hi' })] };

/** Two nodes; counts how often each ran. */
function twoSteps(saver: ReindeerSaver, ran: string[]) {
  const step = (id: string) => () => {
    ran.push(id);
    return { messages: [new AIMessage({ id, content: id })] };
  };
  return new StateGraph(MessagesAnnotation)
    .addNode('one', step('a1'))
    .addNode('two', step('a2'))
    .addEdge(START, 'one')
    .addEdge('one', 'two')
    .addEdge('two', END)
    .compile({ checkpointer: asCheckpointer(saver) });
}

/** The store as a process sees it that dies at one call: nothing answers any more. */
function dyingStore(
  store: CheckpointStore,
  diesAt: (call: 'put' | 'putWrites', count: number) => 'before' | 'after' | null,
): CheckpointStore {
  let dead = false;
  const counts = { put: 0, putWrites: 0 };
  const crash = new Error('the process died');
  const wrap = (name: 'put' | 'putWrites') => async (given: never) => {
    if (dead) throw crash;
    counts[name] += 1;
    const when = diesAt(name, counts[name]);
    if (when !== null) dead = true;
    if (when === 'before') throw crash;
    const answer = await store[name](given);
    if (when === 'after') throw crash;
    return answer;
  };
  return { ...store, put: wrap('put'), putWrites: wrap('putWrites') };
}

/** A peer takes the run over: its row gets a new token. */
async function takeOver(scene: SaverScene, runId: string) {
  const [claimed] = await scene.claim({ deadOwners: ['owner-a'], now: T0 });
  if (claimed === undefined || claimed.run.runId !== runId) throw new Error('the run could not be claimed');
  return { runId, token: claimed.token };
}

describe.each(['sqlite', 'memory'] as const)('crashes on %s', (kind) => {
  const scene = saverScene(kind);

  // A run of twoSteps: put 1 = input, put 2 = after the input's writes, then putWrites and put per node.
  const points = [
    ['before the input is stored', 'put', 1, 'before', 'h a1 a2'],
    ['after the input is stored', 'put', 1, 'after', 'h a1 a2'],
    ['before a node has told what it returned', 'putWrites', 2, 'before', 'h a1 a2'],
    ['between what a node returned and its checkpoint', 'putWrites', 2, 'after', 'h a1 a2'],
    ['before the checkpoint of a node', 'put', 3, 'before', 'h a1 a2'],
    ['after the checkpoint of a node', 'put', 3, 'after', 'h a1 a2'],
    ['between the last node and its checkpoint', 'putWrites', 3, 'after', 'h a1 a2'],
    ['after the last checkpoint', 'put', 4, 'after', 'h a1 a2'],
  ] as const;

  test.each(points)('%s: no message is lost or doubled', async (_name, call, count, when, line) => {
    const world = scene();
    const threadId = world.thread();
    const { fence } = await world.running({ threadId });
    const ran: string[] = [];
    const dying = dyingStore(world.a.checkpoints, (name, n) => (name === call && n === count ? when : null));
    await expect(
      twoSteps(world.saver(threadId, fence, { store: dying }), ran).invoke(input, at(threadId)),
    ).rejects.toThrow('the process died');

    const next = await takeOver(world, fence.runId);
    const saver = world.saver(threadId, next);
    const isStored = (await saver.getTuple(at(threadId))) !== undefined;
    await twoSteps(saver, ran).invoke(isStored ? null : input, at(threadId));

    expect(await world.messageLine(threadId)).toBe(line);
    const updates = await world.bodies(threadId, 'update');
    expect(updates.map(({ node }) => node)).toEqual(['one', 'two']);
    const checkpoints = await world.bodies(threadId, 'checkpoint');
    expect(new Set(checkpoints.map(({ checkpointId }) => checkpointId)).size).toBe(checkpoints.length);
    const head = await saver.getTuple(at(threadId));
    expect(checkpoints.at(-1)?.checkpointId).toBe(head?.checkpoint.id);
    await world.finalize(next, 'success');
  });

  test('what a node returned before the crash is not computed again', async () => {
    const world = scene();
    const threadId = world.thread();
    const { fence } = await world.running({ threadId });
    const ran: string[] = [];
    const dying = dyingStore(world.a.checkpoints, (name, n) => (name === 'putWrites' && n === 2 ? 'after' : null));
    await expect(
      twoSteps(world.saver(threadId, fence, { store: dying }), ran).invoke(input, at(threadId)),
    ).rejects.toThrow();
    const next = await takeOver(world, fence.runId);
    await twoSteps(world.saver(threadId, next), ran).invoke(null, at(threadId));
    expect(ran).toEqual(['a1', 'a2']);
    await world.finalize(next, 'success');
  });

  test('a holder that was taken over stops at its next write, which changes nothing', verifies('RL-08'), async () => {
    const world = scene();
    const threadId = world.thread();
    const { fence } = await world.running({ threadId });
    const ran: string[] = [];
    let before: unknown;
    const graph = new StateGraph(MessagesAnnotation)
      .addNode('one', async () => {
        ran.push('one');
        await takeOver(world, fence.runId);
        before = await world.picture(threadId);
        return { messages: [new AIMessage({ id: 'late', content: 'late' })] };
      })
      .addNode('two', () => {
        ran.push('two');
        return {};
      })
      .addEdge(START, 'one')
      .addEdge('one', 'two')
      .addEdge('two', END)
      .compile({ checkpointer: asCheckpointer(world.saver(threadId, fence)) });
    await expect(graph.invoke(input, at(threadId))).rejects.toMatchObject({ code: 'fenced' });
    expect(ran).toEqual(['one']);
    expect(await world.picture(threadId)).toEqual(before);
  });

  test('nothing of a superseded attempt shows in the one that follows', async () => {
    const world = scene();
    const threadId = world.thread();
    const { fence } = await world.running({ threadId });
    const old = world.saver(threadId, fence);
    await twoSteps(old, []).invoke(input, at(threadId));
    const next = await takeOver(world, fence.runId);
    const head = await old.getTuple(at(threadId));
    if (head === undefined) throw new Error('no head');
    const writes = old.putWrites(
      head.config,
      [['messages', [new AIMessage({ id: 'x', content: 'x' })]]],
      'task',
      '~__pregel_pull, one',
    );
    await expect(writes).rejects.toMatchObject({ code: 'fenced' });
    const tuple = await world.saver(threadId, next).getTuple(at(threadId));
    expect(tuple?.pendingWrites).toEqual([]);
    expect(await world.messageLine(threadId)).toBe('h a1 a2');
    await world.finalize(next, 'success');
  });
});
