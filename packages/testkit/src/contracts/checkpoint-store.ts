import { createHash } from 'node:crypto';
import type { CheckpointPut, CheckpointStore, Fence, NewFact, Packed, PackedMessage } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import { type StoresFactory, scenes, T0 } from './scene.ts';

/** A message as a packer makes it. */
function packedMessage(id: string, content: string): PackedMessage {
  const body = JSON.stringify({ type: 'human', id, content });
  return { hash: createHash('sha256').update(body).digest().subarray(0, 16).toString('base64url'), id, body };
}

/** A value with messages in it: `value` is given each message's mention. */
function packed(value: unknown, messages: readonly PackedMessage[] = []): Packed {
  return { json: JSON.stringify(value), messages };
}

const mention = (message: PackedMessage): { readonly $m: string } => ({ $m: message.hash });

const listOf = (...messages: PackedMessage[]): Packed => packed(messages.map(mention), messages);

/** Ids that grow with the number, in LangGraph's form. */
const checkpointIdOf = (number: number): string => `1f000000-0000-6000-8000-${String(number).padStart(12, '0')}`;
const taskIdOf = (number: number): string => `5e000000-0000-5000-8000-${String(number).padStart(12, '0')}`;

type Values = Readonly<Record<string, readonly [version: string, value: Packed]>>;

/** A checkpoint whose `channel_versions` name what `values` and `older` give. */
function checkpoint(
  number: number,
  values: Values,
  part: Partial<CheckpointPut> & { readonly older?: Readonly<Record<string, string>> } = {},
): CheckpointPut {
  const { older = {}, ...rest } = part;
  const versions = {
    ...older,
    ...Object.fromEntries(Object.entries(values).map(([name, [version]]) => [name, version])),
  };
  return {
    fence: null,
    threadId: 'thread',
    ns: '',
    checkpointId: checkpointIdOf(number),
    parentId: number === 1 ? null : checkpointIdOf(number - 1),
    checkpoint: JSON.stringify({
      v: 4,
      id: checkpointIdOf(number),
      ts: new Date(T0 + number).toISOString(),
      channel_versions: versions,
      versions_seen: { node: { messages: versions.messages ?? 'v0' } },
    }),
    metadata: JSON.stringify({ source: 'loop', step: number, parents: {} }),
    channels: Object.entries(values).map(([name, [version, value]]) => ({ name, version, value })),
    facts: [],
    now: T0,
    ...rest,
  };
}

type PutWrites = Parameters<CheckpointStore['putWrites']>[0];

function writes(
  number: number,
  task: number,
  values: readonly (readonly [number, string, Packed | Uint8Array])[],
  part: Partial<PutWrites> = {},
): PutWrites {
  return {
    fence: null,
    threadId: 'thread',
    ns: '',
    checkpointId: checkpointIdOf(number),
    taskId: taskIdOf(task),
    taskPath: `~__pregel_pull, node${task}`,
    replace: false,
    writes: values.map(([index, channel, value]) => ({
      index,
      channel,
      type: value instanceof Uint8Array ? 'bytes' : 'json',
      value,
    })),
    facts: [],
    now: T0,
    ...part,
  };
}

const ALL = { threadId: null, ns: null, checkpointId: null, before: null, limit: null, filter: {} } as const;
const HEAD = { threadId: 'thread', ns: '', checkpointId: null } as const;
const at = (number: number) => ({ threadId: 'thread', ns: '', checkpointId: checkpointIdOf(number) });

const fact = (key: string): NewFact => ({ key, body: { kind: 'custom', ns: '', data: key } });

/** What every `CheckpointStore` must do. */
export function checkpointStoreContract(name: string, open: StoresFactory): void {
  describe(`${name}: checkpoints`, () => {
    const scene = scenes(open);
    const store = async (): Promise<CheckpointStore> => (await scene()).a.checkpoints;
    const one = packedMessage('m1', 'one');
    const two = packedMessage('m2', 'two');
    const three = packedMessage('m3', 'three');

    test('gives back what was put, each message once', async () => {
      const checkpoints = await store();
      const input = checkpoint(1, {
        messages: ['v1', listOf(one, two, one)],
        other: ['v1', packed({ deep: [mention(two), 'text', 1.5, null], empty: {} }, [two])],
      });
      expect(await checkpoints.put(input)).toEqual({ outcome: 'ok' });
      const loaded = await checkpoints.load(HEAD);
      expect(loaded).toMatchObject({
        threadId: 'thread',
        ns: '',
        checkpointId: checkpointIdOf(1),
        parentId: null,
        writes: [],
      });
      expect(JSON.parse(loaded?.checkpoint ?? '')).toEqual(JSON.parse(input.checkpoint));
      expect(JSON.parse(loaded?.metadata ?? '')).toEqual(JSON.parse(input.metadata));
      const jsons = Object.fromEntries(
        loaded?.channels.map(({ name: channel, json }) => [channel, JSON.parse(json)]) ?? [],
      );
      expect(jsons).toEqual({
        messages: [mention(one), mention(two), mention(one)],
        other: { deep: [mention(two), 'text', 1.5, null], empty: {} },
      });
      expect([...(loaded?.messages ?? [])].sort((a, b) => (a.id ?? '').localeCompare(b.id ?? ''))).toEqual([one, two]);
    });

    test('text of a user that looks like a mention is text', async () => {
      const checkpoints = await store();
      const trap = `{"$m":"${one.hash}"},{"$m":7},{"$m":[1,2]},=1`;
      await checkpoints.put(
        checkpoint(1, { messages: ['v1', listOf(one)], trap: ['v1', packed([trap, { [trap]: trap }])] }),
      );
      const loaded = await checkpoints.load(HEAD);
      const json = loaded?.channels.find(({ name: channel }) => channel === 'trap')?.json ?? '';
      expect(JSON.parse(json)).toEqual([trap, { [trap]: trap }]);
    });

    test('a version of a channel is stored once and belongs to every checkpoint that names it', async () => {
      const checkpoints = await store();
      await checkpoints.put(checkpoint(1, { title: ['v1', packed('first')] }));
      await checkpoints.put(checkpoint(2, { messages: ['v2', listOf(one)] }, { older: { title: 'v1' } }));
      await checkpoints.put(checkpoint(3, { title: ['v1', packed('never')] }));
      for (const number of [1, 2, 3]) {
        const loaded = await checkpoints.load(at(number));
        expect(loaded?.channels.find(({ name: channel }) => channel === 'title')?.json).toBe('"first"');
      }
    });

    test('finds the newest, one by its id, and nothing for what is not there', async () => {
      const checkpoints = await store();
      expect(await checkpoints.load(HEAD)).toBeNull();
      await checkpoints.put(checkpoint(2, {}));
      await checkpoints.put(checkpoint(1, {}));
      await checkpoints.put(checkpoint(3, {}, { ns: 'child' }));
      expect((await checkpoints.load(HEAD))?.checkpointId).toBe(checkpointIdOf(2));
      expect((await checkpoints.load(at(1)))?.checkpointId).toBe(checkpointIdOf(1));
      expect((await checkpoints.load({ ...HEAD, ns: 'child' }))?.checkpointId).toBe(checkpointIdOf(3));
      expect(await checkpoints.load(at(9))).toBeNull();
      expect(await checkpoints.load({ ...HEAD, threadId: 'other' })).toBeNull();
    });

    test('ids need not be UUIDs', async () => {
      const checkpoints = await store();
      const ids = { checkpointId: 'checkpoint-b', parentId: 'checkpoint-a' };
      await checkpoints.put({ ...checkpoint(1, { title: ['v1', packed(1)] }), ...ids });
      await checkpoints.putWrites(
        writes(1, 1, [[0, 'title', packed(2)]], { checkpointId: 'checkpoint-b', taskId: 'task' }),
      );
      const loaded = await checkpoints.load({ ...HEAD, checkpointId: 'checkpoint-b' });
      expect(loaded).toMatchObject({ ...ids, writes: [{ taskId: 'task', json: '2' }] });
    });

    test('pending writes come in the order of task path, task and index, and may come before their checkpoint', async () => {
      const checkpoints = await store();
      await checkpoints.putWrites(
        writes(1, 2, [
          [0, 'messages', listOf(two)],
          [1, 'title', packed('t')],
        ]),
      );
      await checkpoints.putWrites(writes(1, 3, [[0, 'messages', listOf(three)]], { taskPath: '~__pregel_pull, a' }));
      await checkpoints.putWrites(writes(1, 1, [[0, 'messages', listOf(one)]]));
      await checkpoints.put(checkpoint(1, {}));
      const loaded = await checkpoints.load(HEAD);
      expect(loaded?.writes.map(({ taskId, channel, json }) => [taskId, channel, JSON.parse(json)])).toEqual([
        [taskIdOf(3), 'messages', [mention(three)]],
        [taskIdOf(1), 'messages', [mention(one)]],
        [taskIdOf(2), 'messages', [mention(two)]],
        [taskIdOf(2), 'title', 't'],
      ]);
      expect(loaded?.messages.map(({ id }) => id).sort()).toEqual(['m1', 'm2', 'm3']);
    });

    test('what a task returned is never replaced; an interrupt, error or answer is', async () => {
      const checkpoints = await store();
      await checkpoints.put(checkpoint(1, {}));
      await checkpoints.putWrites(writes(1, 1, [[0, 'title', packed('first')]]));
      await checkpoints.putWrites(
        writes(1, 1, [
          [0, 'title', packed('second')],
          [1, 'more', packed(1)],
        ]),
      );
      await checkpoints.putWrites(writes(1, 1, [[-3, '__interrupt__', packed('ask')]], { replace: true }));
      await checkpoints.putWrites(writes(1, 1, [[-3, '__interrupt__', packed('ask again')]], { replace: true }));
      const loaded = await checkpoints.load(HEAD);
      expect(loaded?.writes.map(({ index, json }) => [index, json])).toEqual([
        [-3, '"ask again"'],
        [0, '"first"'],
        [1, '1'],
      ]);
    });

    test('binary writes come back byte for byte', async () => {
      const checkpoints = await store();
      const bytes = new Uint8Array([0x00, 0xff, 0x80, 0x01, 0x0a]);
      await checkpoints.put(checkpoint(1, {}));
      await checkpoints.putWrites(
        writes(1, 1, [
          [0, 'file', bytes],
          [1, 'title', packed('x')],
        ]),
      );
      const loaded = await checkpoints.load(HEAD);
      expect(loaded?.writes.map(({ type, bytes: got }) => [type, got])).toEqual([
        ['bytes', bytes],
        ['json', null],
      ]);
    });

    test('large values and values that come back are given back', async () => {
      const checkpoints = await store();
      const large = { text: 'x'.repeat(5000), list: [mention(one)] };
      await checkpoints.put(checkpoint(1, { doc: ['v1', packed(large, [one])] }));
      await checkpoints.putWrites(writes(1, 1, [[0, 'doc', packed(large, [one])]]));
      await checkpoints.put(checkpoint(2, { doc: ['v2', packed(large, [one])] }));
      const loaded = await checkpoints.load(at(2));
      expect(JSON.parse(loaded?.channels[0]?.json ?? '')).toEqual(large);
      expect(loaded?.messages).toEqual([one]);
      expect(JSON.parse((await checkpoints.load(at(1)))?.writes[0]?.json ?? '')).toEqual(large);
    });

    test('lists newest first, with bounds and filters', async () => {
      const checkpoints = await store();
      for (const number of [1, 2, 3, 4]) await checkpoints.put(checkpoint(number, {}));
      await checkpoints.put(checkpoint(5, {}, { ns: 'child' }));
      await checkpoints.put(checkpoint(6, {}, { threadId: 'other' }));
      const ids = async (part: Partial<Parameters<CheckpointStore['list']>[0]>): Promise<number[]> =>
        (await checkpoints.list({ ...ALL, ...part })).map(({ checkpointId }) => Number(checkpointId.slice(-12)));
      expect(await ids({})).toEqual([6, 5, 4, 3, 2, 1]);
      expect(await ids({ threadId: 'thread' })).toEqual([5, 4, 3, 2, 1]);
      expect(await ids({ threadId: 'thread', ns: '' })).toEqual([4, 3, 2, 1]);
      expect(await ids({ threadId: 'thread', ns: '', before: checkpointIdOf(3) })).toEqual([2, 1]);
      expect(await ids({ threadId: 'thread', ns: '', limit: 2 })).toEqual([4, 3]);
      expect(await ids({ limit: 0 })).toEqual([]);
      expect(await ids({ checkpointId: checkpointIdOf(3) })).toEqual([3]);
      expect(await ids({ filter: { step: 2 } })).toEqual([2]);
      expect(await ids({ filter: { source: 'loop', parents: {} }, limit: 2 })).toEqual([6, 5]);
      expect(await ids({ filter: { source: 'input' } })).toEqual([]);
      expect(await ids({ filter: { missing: null } })).toEqual([]);
    });

    test('writes facts in the same transaction, under the run', async () => {
      const world = await scene();
      const { a } = world;
      const { fence } = await world.running();
      await a.checkpoints.put(checkpoint(1, {}, { fence, facts: [fact('put')] }));
      await a.checkpoints.putWrites(writes(1, 1, [[0, 'title', packed(1)]], { fence, facts: [fact('writes')] }));
      await a.checkpoints.putWrites(writes(1, 1, [[0, 'title', packed(1)]], { fence, facts: [fact('writes')] }));
      const { facts } = await a.log.read({
        threadId: 'thread',
        runId: fence.runId,
        afterSeq: 0,
        limit: 100,
        maxBytes: 1e6,
      });
      expect(facts.flatMap(({ body }) => (body.kind === 'custom' ? [body.data] : []))).toEqual(['put', 'writes']);
    });

    test('a stale fence changes nothing', verifies('RL-08'), async () => {
      const world = await scene();
      const { a } = world;
      const { fence } = await world.running();
      await a.checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one)] }, { fence }));
      await a.checkpoints.putWrites(writes(1, 1, [[0, 'title', packed(1)]], { fence }));
      const stale: Fence = { runId: fence.runId, token: 'of-an-earlier-holder' };
      const before = await world.picture();
      const values: Values = { messages: ['v2', listOf(one, two)] };
      expect(await a.checkpoints.put(checkpoint(2, values, { fence: stale, facts: [fact('x')] }))).toEqual({
        outcome: 'fenced',
      });
      const late = writes(1, 1, [[1, 'title', packed(2)]], { fence: stale, facts: [fact('y')] });
      expect(await a.checkpoints.putWrites(late)).toEqual({ outcome: 'fenced' });
      const back = { fence: stale, threadId: 'thread', checkpointId: '', now: T0 };
      expect(await a.checkpoints.rollback(back)).toEqual({ outcome: 'fenced' });
      expect(await world.picture()).toEqual(before);
    });

    test(
      'rollback restores the state before the run: checkpoints, channels, and the writes that stood',
      verifies('RB-01'),
      async () => {
        const world = await scene();
        const { a } = world;
        const first = await world.running({ runId: 'first' });
        await a.checkpoints.put(
          checkpoint(
            1,
            { messages: ['v1', listOf(one)], extra: ['v1', packed({ by: 'middleware' })] },
            { fence: first.fence },
          ),
        );
        await a.checkpoints.putWrites(
          writes(1, 1, [[-3, '__interrupt__', packed('ask')]], { fence: first.fence, replace: true }),
        );
        await world.finalize(first.fence, 'success');
        const before = await a.checkpoints.list({ ...ALL, threadId: 'thread' });

        const { fence } = await world.running({ runId: 'second' });
        // It answers the question, asks again, and goes on, in a child namespace too.
        await a.checkpoints.putWrites(writes(1, 1, [[-4, '__resume__', packed(['yes'])]], { fence, replace: true }));
        await a.checkpoints.putWrites(writes(1, 1, [[-3, '__interrupt__', packed('other')]], { fence, replace: true }));
        await a.checkpoints.putWrites(writes(1, 1, [[0, 'messages', listOf(two)]], { fence }));
        await a.checkpoints.put(checkpoint(2, { messages: ['v2', listOf(one, two)] }, { fence }));
        await a.checkpoints.putWrites(writes(2, 2, [[0, 'messages', listOf(three)]], { fence }));
        await a.checkpoints.put(checkpoint(3, { messages: ['v3', listOf(three)] }, { fence, ns: 'child' }));
        expect(await a.checkpoints.list({ ...ALL, threadId: 'thread' })).not.toEqual(before);

        const back = { fence, threadId: 'thread', checkpointId: checkpointIdOf(1), now: T0 };
        expect(await a.checkpoints.rollback(back)).toEqual({ outcome: 'ok' });
        expect(await a.checkpoints.list({ ...ALL, threadId: 'thread' })).toEqual(before);
      },
    );

    test('the head is what was written last, also when a clock went back and its id is lower', async () => {
      const world = await scene();
      const { a } = world;
      const first = await world.running({ runId: 'first' });
      const put = (n: number, held: typeof first, more: object = {}) =>
        a.checkpoints.put(
          checkpoint(n, { title: [`v${n}`, packed(n)] }, { fence: held.fence, facts: [fact(`put ${n}`)], ...more }),
        );
      const head = async (threadId = 'thread') =>
        (await world.b.checkpoints.load({ threadId, ns: '', checkpointId: null }))?.checkpointId;
      await put(5, first);
      await put(6, first);
      await put(6, first);
      await world.finalize(first.fence, 'success');
      const before = await a.checkpoints.list({ ...ALL, threadId: 'thread' });

      // The clock of the next holder is behind.
      const second = await world.running({ runId: 'second' });
      await put(2, second);
      await put(3, second, { ns: 'child' });
      await put(1, second);
      await put(6, second);
      expect(await head()).toBe(checkpointIdOf(1));
      await a.threads.copy({ fromThreadId: 'thread', toThreadId: 'copy', userId: 'user', now: T0 });
      expect(await head('copy')).toBe(checkpointIdOf(1));
      const third = await world.running({ runId: 'third', threadId: 'copy' });
      await a.checkpoints.put(
        checkpoint(0, { title: ['v0', packed(0)] }, { fence: third.fence, threadId: 'copy', facts: [fact('put 0')] }),
      );
      expect(await head('copy')).toBe(checkpointIdOf(0));

      await a.checkpoints.rollback({
        fence: second.fence,
        threadId: 'thread',
        checkpointId: checkpointIdOf(6),
        now: T0,
      });
      expect(await a.checkpoints.list({ ...ALL, threadId: 'thread' })).toEqual(before);
      expect(await head()).toBe(checkpointIdOf(6));
      await put(4, second);
      expect(await a.checkpoints.prune?.({ threadId: 'thread', keep: 2 })).toBe(1);
      const left = (await a.checkpoints.list({ ...ALL, threadId: 'thread' })).map((one) => one.checkpointId);
      expect(left).toEqual([checkpointIdOf(6), checkpointIdOf(4)]);
    });

    test('rollback to nothing deletes the checkpoints of the thread and of no other', async () => {
      const world = await scene();
      const { a } = world;
      const { fence } = await world.running();
      await a.checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one)] }, { fence }));
      await a.checkpoints.put(checkpoint(2, {}, { threadId: 'other' }));
      await a.checkpoints.rollback({ fence, threadId: 'thread', checkpointId: '', now: T0 });
      const left = await a.checkpoints.list(ALL);
      expect(left.map(({ threadId }) => threadId)).toEqual(['other']);
    });

    test(
      'rollback to a checkpoint that does not exist fails loudly and changes nothing',
      verifies('RB-05'),
      async () => {
        const world = await scene();
        const { fence } = await world.running();
        await world.a.checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one)] }, { fence }));
        const before = await world.picture();
        const lost = { fence, threadId: 'thread', checkpointId: checkpointIdOf(0), now: T0 };
        await expect(world.a.checkpoints.rollback(lost)).rejects.toMatchObject({ code: 'precondition_failed' });
        expect(await world.picture()).toEqual(before);
      },
    );

    test('pruning keeps the newest of each namespace with everything that they mention', async () => {
      const checkpoints = await store();
      await checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one)], title: ['v1', packed('t')] }));
      await checkpoints.put(checkpoint(2, { messages: ['v2', listOf(one, two)] }, { older: { title: 'v1' } }));
      await checkpoints.put(checkpoint(3, { messages: ['v3', listOf(two, three)] }, { older: { title: 'v1' } }));
      await checkpoints.put(checkpoint(4, { messages: ['v1', listOf(one)] }, { ns: 'child' }));
      const kept = [await checkpoints.load(at(3)), await checkpoints.load({ ...at(4), ns: 'child' })];
      expect(await checkpoints.prune({ threadId: 'thread', keep: 1 })).toBe(2);
      expect([await checkpoints.load(at(3)), await checkpoints.load({ ...at(4), ns: 'child' })]).toEqual(kept);
      expect(await checkpoints.load(at(2))).toBeNull();
      expect(await checkpoints.prune({ threadId: 'thread', keep: 1 })).toBe(0);
    });

    test('pruning leaves the log whole', async () => {
      const world = await scene();
      const { fence } = await world.running();
      const message = (which: PackedMessage): NewFact => ({
        key: `message:${which.id}`,
        body: { kind: 'message', ns: '', message: mention(which) },
      });
      await world.a.checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one)] }, { fence, facts: [message(one)] }));
      await world.a.checkpoints.put(checkpoint(2, { messages: ['v2', listOf(two)] }, { fence, facts: [message(two)] }));
      const before = await world.history();
      await world.a.checkpoints.prune({ threadId: 'thread', keep: 1 });
      expect(await world.history()).toEqual(before);
      const page = await world.a.log.messages({
        threadId: 'thread',
        runId: null,
        before: null,
        after: null,
        limit: 10,
      });
      expect(page.facts.map(({ body }) => (body.kind === 'message' ? body.message : null))).toEqual([
        JSON.parse(one.body),
        JSON.parse(two.body),
      ]);
    });

    test('a deleted thread is gone, and its id can be used anew', async () => {
      const checkpoints = await store();
      await checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one)] }));
      await checkpoints.putWrites(writes(1, 1, [[0, 'title', packed(1)]]));
      await checkpoints.deleteThread('thread');
      await checkpoints.deleteThread('never-was');
      expect(await checkpoints.list(ALL)).toEqual([]);
      await checkpoints.put(checkpoint(1, { messages: ['v1', listOf(two)] }));
      expect((await checkpoints.load(HEAD))?.writes).toEqual([]);
      expect((await checkpoints.load(HEAD))?.messages).toEqual([two]);
    });

    test('a copy is equal and stands on its own', async () => {
      const checkpoints = await store();
      await checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one, two)] }));
      await checkpoints.putWrites(writes(1, 1, [[0, 'messages', listOf(three)]]));
      await checkpoints.put(checkpoint(2, { messages: ['v1', listOf(one)] }, { ns: 'child' }));
      await checkpoints.copyThread({ fromThreadId: 'thread', toThreadId: 'copy' });
      const original = await checkpoints.list({ ...ALL, threadId: 'thread' });
      const copied = await checkpoints.list({ ...ALL, threadId: 'copy' });
      expect(copied).toEqual(original.map((row) => ({ ...row, threadId: 'copy' })));
      await checkpoints.deleteThread('thread');
      expect(await checkpoints.list({ ...ALL, threadId: 'copy' })).toEqual(copied);
    });

    test('takes differences when it says so, and refuses one whose ground is missing', async (context) => {
      const checkpoints = await store();
      if (checkpoints.incremental !== true) return context.skip('this store takes whole values only');
      await checkpoints.put(checkpoint(1, { messages: ['v1', listOf(one, two)] }));
      const next = (number: number, base: string, keep: number, value: Packed): CheckpointPut => ({
        ...checkpoint(number, { messages: [`v${number}`, value] }),
        channels: [{ name: 'messages', version: `v${number}`, value, base: { version: base, keep } }],
      });
      const read = async (number: number): Promise<unknown> =>
        JSON.parse((await checkpoints.load(at(number)))?.channels[0]?.json ?? 'null');
      expect(await checkpoints.put(next(2, 'v1', 2, listOf(three)))).toEqual({ outcome: 'ok' });
      expect(await read(2)).toEqual([one, two, three].map(mention));
      // Bodies that the thread has need not travel.
      expect(await checkpoints.put(next(3, 'v2', 1, packed([mention(three), mention(two)])))).toEqual({
        outcome: 'ok',
      });
      expect(await read(3)).toEqual([one, three, two].map(mention));
      expect(await checkpoints.put(next(4, 'v3', 3, packed([])))).toEqual({ outcome: 'ok' });
      expect(await read(4)).toEqual([one, three, two].map(mention));

      const before = await checkpoints.list(ALL);
      const unknown = packedMessage('m9', 'never stored');
      expect(await checkpoints.put(next(5, 'v4', 3, packed([mention(unknown)])))).toEqual({ outcome: 'incomplete' });
      expect(await checkpoints.put(next(5, 'v9', 1, listOf(one)))).toEqual({ outcome: 'incomplete' });
      expect(await checkpoints.put(next(5, 'v4', 4, listOf(one)))).toEqual({ outcome: 'incomplete' });
      const lost = writes(1, 1, [[0, 'messages', packed([mention(unknown)])]]);
      expect(await checkpoints.putWrites(lost)).toEqual({ outcome: 'incomplete' });
      expect(await checkpoints.list(ALL)).toEqual(before);
    });
  });
}
