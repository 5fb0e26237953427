import { AIMessage, AIMessageChunk, type BaseMessage, HumanMessage, RemoveMessage } from '@langchain/core/messages';
import { MemorySaver, ReducedValue, StateSchema } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { allowedTools } from '../skills/policy.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { sampleSkill } from '../test-support/sample-skill.ts';
import { channelsOfSchema } from './channels.ts';
import { foldMessages, REMOVE_ALL } from './messages.ts';
import type { State } from './middleware.ts';
import { defineMiddleware } from './middleware.ts';
import { threadChannels } from './thread-channels.ts';

const channels = threadChannels(testSurroundings().random);
const reduce = (name: string, left: unknown, right: unknown): unknown => channels[name]?.reduce(left, right);
const human = (id: string, content = id): HumanMessage => new HumanMessage({ id, content });
const remove = (id: string): RemoveMessage => new RemoveMessage({ id });
const texts = (messages: unknown): string[] => (messages as BaseMessage[]).map((message) => message.text);

describe('messages', () => {
  test('are appended, replaced in place by id, and removed', verifies('ST-1a'), () => {
    const list = [human('a'), human('b'), human('c')];
    expect(texts(reduce('messages', list, [human('d')]))).toEqual(['a', 'b', 'c', 'd']);
    expect(texts(reduce('messages', list, [human('b', 'new')]))).toEqual(['a', 'new', 'c']);
    expect(texts(reduce('messages', list, human('b', 'single')))).toEqual(['a', 'single', 'c']);
    expect(texts(reduce('messages', list, [remove('a'), remove('c'), human('a', 'again')]))).toEqual(['b', 'again']);
    expect(texts(reduce('messages', list, [human('x'), remove(REMOVE_ALL), human('y'), human('z')]))).toEqual([
      'y',
      'z',
    ]);
    expect(texts(list)).toEqual(['a', 'b', 'c']);
  });

  test('take client forms, get ids, and chunks become messages', verifies('ST-1a'), () => {
    const list = reduce(
      'messages',
      [],
      [{ role: 'user', content: 'hi' }, new AIMessageChunk('piece')],
    ) as BaseMessage[];
    expect(list.map((message) => message.type)).toEqual(['human', 'ai']);
    expect(list.every((message) => typeof message.id === 'string' && message.id !== '')).toBe(true);
    expect(list[1]).toBeInstanceOf(AIMessage);
    expect(AIMessageChunk.isInstance(list[1])).toBe(false);
  });

  const write = fc.oneof(
    fc.constantFrom('a', 'b', 'c', 'd').map((id) => human(id)),
    fc.constantFrom('a', 'b', REMOVE_ALL, 'nobody').map(remove),
  );

  test('two writes in one step are the same as one after the other', () => {
    fc.assert(
      fc.property(fc.array(write, { maxLength: 6 }), fc.array(write, { maxLength: 6 }), (first, second) => {
        const start = [human('a'), human('z')];
        expect(foldMessages(foldMessages(start, first), second)).toEqual(foldMessages(start, [...first, ...second]));
      }),
    );
  });

  test('ids stay unique, whatever is written', () => {
    fc.assert(
      fc.property(fc.array(write, { maxLength: 12 }), (writes) => {
        const ids = foldMessages([human('a'), human('b')], writes).map((message) => message.id);
        expect(new Set(ids).size).toBe(ids.length);
      }),
    );
  });
});

describe('the other channels', () => {
  test('merge as agreed', verifies('ST-1b'), () => {
    expect(reduce('sandbox', { sandbox_id: 'a' }, { sandbox_id: 'a' })).toEqual({ sandbox_id: 'a' });
    expect(reduce('sandbox', { sandbox_id: 'a' }, null)).toEqual({ sandbox_id: 'a' });
    expect(reduce('title', 'a', 'b')).toBe('b');
    expect(reduce('summary_text', 'a', 'b')).toBe('b');
    expect(reduce('artifacts', ['a', 'b'], ['b', 'c', 'c'])).toEqual(['a', 'b', 'c']);
    expect(reduce('todos', [{ content: 'x', status: 'pending' }], null)).toEqual([{ content: 'x', status: 'pending' }]);
    expect(reduce('todos', [{ content: 'x', status: 'pending' }], [])).toEqual([]);
    expect(reduce('goal', { text: 'g' }, null)).toEqual({ text: 'g' });
    expect(reduce('uploaded_files', [{ filename: 'a' }], [])).toEqual([]);
    expect(reduce('background_tasks', [1], [2])).toEqual([2]);
    expect(reduce('thread_data', { a: 1 }, { b: 2 })).toEqual({ b: 2 });
  });

  test('images keep their facts and no pixels; an empty write clears', verifies('ST-1b'), () => {
    const image = { mime_type: 'image/png', size: 3, actual_path: '/x', base64: 'AAAA' };
    expect(reduce('viewed_images', { a: 1 }, { b: image })).toEqual({
      a: 1,
      b: { mime_type: 'image/png', size: 3, actual_path: '/x' },
    });
    expect(reduce('viewed_images', { a: 1 }, {})).toEqual({});
  });

  test('also the first write of a thread is what the reducer makes of it', verifies('ST-1b'), async () => {
    const image = { mime_type: 'image/png', size: 3, actual_path: '/x', modified_at: 7 };
    const first = {
      messages: [human('go')],
      viewed_images: { a: { ...image, base64: 'AAAA' } },
      delegations: Array.from({ length: 60 }, (_, index) => ({ id: String(index), status: 'running' })),
      todos: 'nonsense',
      promoted: 'nonsense',
      sandbox: 7,
    };
    const saver = new MemorySaver();
    const { start } = fixture({ model: new FakeModel([{ text: 'hi' }, { text: 'again' }]) });
    const attempt = recordedAttempt();
    const { values } = await drain(start(saver, attempt), first, attempt);
    expect(values.viewed_images).toEqual({ a: image });
    expect(values.delegations).toHaveLength(50);
    for (const key of ['todos', 'promoted', 'sandbox']) expect(values[key]).toBeUndefined();
    // And it is kept over a checkpoint, with the writes after it.
    const next = recordedAttempt({ attempt: 2 });
    const more = await drain(start(saver, next), { messages: [human('more')], viewed_images: { b: image } }, next);
    expect(more.values.viewed_images).toEqual({ a: image, b: image });
    expect(more.values.delegations).toHaveLength(50);
  });

  test('promoted tools add up within one catalogue', verifies('ST-1b'), () => {
    expect(reduce('promoted', { catalog_hash: 'h', names: ['a'] }, { catalog_hash: 'h', names: ['a', 'b'] })).toEqual({
      catalog_hash: 'h',
      names: ['a', 'b'],
    });
    expect(reduce('promoted', { catalog_hash: 'h', names: ['a'] }, { catalog_hash: 'i', names: ['b'] })).toEqual({
      catalog_hash: 'i',
      names: ['b'],
    });
  });

  test('a finished delegation is never downgraded; the newest 50 stay', verifies('ST-1b'), () => {
    const done = [{ id: '1', status: 'completed', created_at: 1, run_id: 'r1' }];
    expect(
      reduce('delegations', done, [{ id: '1', status: 'running', created_at: 9, run_id: 'r2', note: 'n' }]),
    ).toEqual([{ id: '1', status: 'completed', created_at: 1, run_id: 'r1', note: 'n' }]);
    const many = Array.from({ length: 60 }, (_, index) => ({ id: String(index), status: 'running' }));
    const kept = reduce('delegations', [], many) as { id: string }[];
    expect(kept.map((entry) => entry.id)).toEqual(many.slice(10).map((entry) => entry.id));
  });

  test('skills are known by path; the descriptions of the newest 8 are kept, and short', verifies('ST-1b'), () => {
    const skills = Array.from({ length: 10 }, (_, index) => ({
      path: `/s${index}`,
      name: 'n',
      description: 'd'.repeat(600),
    }));
    const kept = reduce('skill_context', [], [...skills, skills[3]]) as { path: string; description: string }[];
    expect(kept.map((skill) => skill.path)).toEqual([
      '/s0',
      '/s1',
      '/s2',
      '/s4',
      '/s5',
      '/s6',
      '/s7',
      '/s8',
      '/s9',
      '/s3',
    ]);
    expect(kept.map((skill) => skill.description?.length ?? 0)).toEqual([0, 0, ...Array(8).fill(500)]);
  });

  test(
    'reading many others does not make the agent forget a skill that keeps it to its tools',
    verifies('SK-9'),
    () => {
      const restricting = sampleSkill('strict', { allowedTools: ['read_file'] });
      let read: unknown = [{ path: '/mnt/skills/public/strict/SKILL.md', name: 'strict', description: '' }];
      for (let at = 0; at < 500; at++)
        read = reduce('skill_context', read, [
          { path: `/mnt/skills/public/s${at}/SKILL.md`, name: 's', description: '' },
        ]);
      const allowed = allowedTools({ messages: [], skill_context: read } as unknown as State, {
        skills: [restricting],
        delegated: false,
      });
      expect(allowed?.has('bash')).toBe(false);
      expect((read as unknown[]).length).toBeLessThanOrEqual(1_000);
    },
  );

  test('no reducer throws or mutates, whatever is written', verifies('ST-1b'), () => {
    fc.assert(
      fc.property(fc.constantFrom(...Object.keys(channels)), fc.anything(), fc.anything(), (name, left, right) => {
        expect(() => reduce(name, left, right)).not.toThrow();
        if (name === 'messages') return;
        const frozen = Object.freeze([{ id: 'x', path: 'p' }]);
        expect(() => reduce(name, frozen, right)).not.toThrow();
      }),
      { numRuns: 3_000 },
    );
  });
});

describe('channels of middleware', () => {
  test('defaults, reducers and private fields of both kinds of schema', () => {
    const zod = channelsOfSchema(z.object({ count: z.number().default(3), _own: z.string().optional() }));
    expect(zod.count?.initial?.()).toBe(3);
    expect([zod.count?.hidden, zod._own?.hidden]).toEqual([false, true]);
    const sum = new ReducedValue(z.number().default(0), { reducer: (left: number, right: number) => left + right });
    const state = channelsOfSchema(new StateSchema({ sum }));
    expect(state.sum?.reduce(2, 3)).toBe(5);
    expect(state.sum?.initial?.()).toBe(0);
    expect(channelsOfSchema(undefined)).toEqual({});
  });

  test('a reducer of somebody else that throws cannot poison a thread', verifies('ST-1b'), async () => {
    const brittle = new ReducedValue(z.number().default(0), {
      reducer: (left: number, right: number) => {
        if (right > 1) throw new Error('too much');
        return left + right;
      },
    });
    const middleware = defineMiddleware({
      name: 'brittle',
      stateSchema: new StateSchema({ brittle }),
      beforeModel: (state) => ({ brittle: (state.brittle as number) + 1 }),
    });
    const { start } = fixture({ model: new FakeModel([{ text: 'hi' }]), middleware: [middleware] });
    const saver = new MemorySaver();
    for (const text of ['one', 'two', 'three']) {
      const attempt = recordedAttempt();
      const { messages, values } = await drain(start(saver, attempt), { messages: [new HumanMessage(text)] }, attempt);
      expect(messages.at(-1)?.text).toBe('hi');
      expect(values.brittle).toBe(1);
    }
  });
});
