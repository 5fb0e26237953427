import { AIMessage, type BaseMessage, HumanMessage } from '@langchain/core/messages';
import { type CheckpointTuple, emptyCheckpoint, uuid6 } from '@langchain/langgraph-checkpoint';
import type { CheckpointPut, CheckpointStore } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { saverScene } from './fixture.ts';
import { ReindeerSaver } from './saver.ts';

const human = (id: string): HumanMessage => new HumanMessage({ id, content: id });
const messagesOf = (tuple: CheckpointTuple | undefined): BaseMessage[] =>
  (tuple?.checkpoint.channel_values.messages ?? []) as BaseMessage[];
const META = { source: 'loop' as const, step: 0, parents: {} };

describe('the saver', () => {
  const scene = saverScene('sqlite');

  /** Notes what is sent to the store. */
  function watched(threadId: string): { saver: ReindeerSaver; puts: CheckpointPut[] } {
    const puts: CheckpointPut[] = [];
    const inner = scene().a.checkpoints;
    const store: CheckpointStore = {
      ...inner,
      put: (input) => {
        puts.push(input);
        return inner.put(input);
      },
    };
    return { saver: scene().saver(threadId, null, { store }), puts };
  }

  /** Puts the list as the next checkpoint of the thread. */
  async function step(
    saver: ReindeerSaver,
    threadId: string,
    parentId: string | undefined,
    messages: BaseMessage[],
    version: string,
  ) {
    const id = uuid6(0);
    const config = {
      configurable: { thread_id: threadId, ...(parentId === undefined ? {} : { checkpoint_id: parentId }) },
    };
    const versions = { messages: version as never };
    const checkpoint = { ...emptyCheckpoint(), id, channel_values: { messages }, channel_versions: versions };
    await saver.put(config, checkpoint, META, versions);
    return id;
  }
  const load = async (saver: ReindeerSaver, threadId: string, id?: string): Promise<unknown[]> => {
    const tuple = await saver.getTuple({
      configurable: { thread_id: threadId, ...(id === undefined ? {} : { checkpoint_id: id }) },
    });
    return messagesOf(tuple).map(({ id: messageId }) => messageId);
  };

  test('versions grow in text order across digits and never repeat for two branches', () => {
    const saver = scene().saver('any', null);
    let version = saver.getNextVersion(undefined);
    for (let n = 0; n < 2000; n += 1) {
      const next = saver.getNextVersion(version);
      expect(next > version).toBe(true);
      expect(next.localeCompare(version)).toBe(1);
      version = next;
    }
    expect(saver.getNextVersion(version)).not.toBe(saver.getNextVersion(version));
    expect(saver.getNextVersion(7)).toMatch(/^18.{5}$/);
  });

  test('a growing history is told as what was added', async () => {
    const threadId = scene().thread();
    const { saver, puts } = watched(threadId);
    const history: BaseMessage[] = [];
    let parent: string | undefined;
    for (let n = 1; n <= 5; n += 1) {
      history.push(human(`h${n}`));
      parent = await step(saver, threadId, parent, history, `v${n}`);
    }
    expect(
      puts
        .slice(1)
        .map(({ channels: [channel] }) => [channel?.base?.keep, channel?.value.messages.map(({ id }) => id)]),
    ).toEqual([
      [1, ['h2']],
      [2, ['h3']],
      [3, ['h4']],
      [4, ['h5']],
    ]);
    expect(await load(scene().saver(threadId, null), threadId)).toEqual(['h1', 'h2', 'h3', 'h4', 'h5']);
  });

  test('a message that was replaced in place is told again, also in the middle', async () => {
    const threadId = scene().thread();
    const { saver } = watched(threadId);
    const [one, two, three] = [human('1'), new AIMessage({ id: '2', content: 'two' }), human('3')];
    const first = await step(saver, threadId, undefined, [one, two, three], 'v1');
    two.content = 'changed';
    const second = await step(saver, threadId, first, [one, two, three], 'v2');
    const contents = async (id: string) => {
      const config = { configurable: { thread_id: threadId, checkpoint_id: id } };
      return messagesOf(await scene().saver(threadId, null).getTuple(config)).map(({ content }) => content);
    };
    expect(await contents(first)).toEqual(['1', 'two', '3']);
    expect(await contents(second)).toEqual(['1', 'changed', '3']);
  });

  test('what the store has lost meanwhile is sent again', async () => {
    const threadId = scene().thread();
    const { saver, puts } = watched(threadId);
    const history = [human('h1'), human('h2')];
    const first = await step(saver, threadId, undefined, history, 'v1');
    await scene().a.checkpoints.deleteThread(threadId);
    await step(saver, threadId, first, [...history, human('h3')], 'v2');
    expect(puts.map(({ channels: [channel] }) => channel?.base?.keep)).toEqual([undefined, 2, undefined]);
    expect(await load(scene().saver(threadId, null), threadId)).toEqual(['h1', 'h2', 'h3']);

    await scene().a.checkpoints.deleteThread(threadId);
    const config = { configurable: { thread_id: threadId, checkpoint_ns: '', checkpoint_id: first } };
    await saver.putWrites(config, [['messages', history]], 'task', '~__pregel_pull, node');
    const [row] = await scene().a.checkpoints.list({
      threadId,
      ns: null,
      checkpointId: null,
      before: null,
      limit: null,
      filter: {},
    });
    expect(row).toBeUndefined();
    await step(saver, threadId, undefined, history, 'v1');
    expect(await load(saver, threadId)).toEqual(['h1', 'h2']);
  });

  test('a saver without a thread serves any, and remembers nothing between them', async () => {
    const [a, b] = [scene().thread(), scene().thread()];
    const saver = new ReindeerSaver({ store: scene().a.checkpoints, fence: null, surroundings: scene().surroundings });
    const shared = human('shared');
    const first = await step(saver, a, undefined, [shared], 'v1');
    await step(saver, b, undefined, [shared], 'v1');
    await step(saver, a, first, [shared, human('more')], 'v2');
    expect(await load(saver, a)).toEqual(['shared', 'more']);
    expect(await load(saver, b)).toEqual(['shared']);
  });

  test('pending writes come in the order of the tasks, whatever order the store has', async () => {
    const threadId = scene().thread();
    const inner = scene().a.checkpoints;
    const store: CheckpointStore = {
      ...inner,
      load: async (input) => {
        const loaded = await inner.load(input);
        return loaded === null ? null : { ...loaded, writes: [...loaded.writes].reverse() };
      },
    };
    const saver = scene().saver(threadId, null, { store });
    const id = await step(saver, threadId, undefined, [human('h')], 'v1');
    const config = { configurable: { thread_id: threadId, checkpoint_ns: '', checkpoint_id: id } };
    await saver.putWrites(
      config,
      [
        ['a', 1],
        ['b', 2],
      ],
      'task-x',
      '~__pregel_push, 0000000001',
    );
    await saver.putWrites(config, [['a', 3]], 'task-z', '~__pregel_push, 0000000000');
    await saver.putWrites(config, [['a', 4]], 'task-y');
    const tuple = await saver.getTuple(config);
    expect(tuple?.pendingWrites).toEqual([
      ['task-y', 'a', 4],
      ['task-z', 'a', 3],
      ['task-x', 'a', 1],
      ['task-x', 'b', 2],
    ]);
  });

  test('binary writes and values come back byte for byte', async () => {
    const threadId = scene().thread();
    const saver = scene().saver(threadId, null);
    const bytes = new Uint8Array([0, 255, 128, 1]);
    const id = await step(saver, threadId, undefined, [human('h')], 'v1');
    const config = { configurable: { thread_id: threadId, checkpoint_ns: '', checkpoint_id: id } };
    await saver.putWrites(
      config,
      [
        ['file', bytes],
        ['files', { inner: bytes }],
      ],
      'task',
      '~__pregel_pull, n',
    );
    expect((await saver.getTuple(config))?.pendingWrites).toEqual([
      ['task', 'file', bytes],
      ['task', 'files', { inner: bytes }],
    ]);
  });

  test('history with limit 0 is empty', verifies('RB-14'), async () => {
    const threadId = scene().thread();
    const saver = scene().saver(threadId, null);
    await step(saver, threadId, undefined, [human('h')], 'v1');
    const count = async (limit?: number): Promise<number> => {
      const options = limit === undefined ? {} : { limit };
      let found = 0;
      for await (const _tuple of saver.list({ configurable: { thread_id: threadId } }, options)) found += 1;
      return found;
    };
    expect([await count(0), await count(1), await count()]).toEqual([0, 1, 1]);
  });

  test('a missing id is refused with the name of the field', async () => {
    const saver = scene().saver('t', null);
    await expect(saver.put({}, emptyCheckpoint(), META, {})).rejects.toThrow(/configurable\.thread_id/);
    await expect(saver.putWrites({ configurable: { thread_id: 't' } }, [], 'task')).rejects.toThrow(
      /configurable\.checkpoint_id/,
    );
  });
});
