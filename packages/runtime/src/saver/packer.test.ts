import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  ChatMessage,
  FunctionMessage,
  HumanMessage,
  HumanMessageChunk,
  RemoveMessage,
  SystemMessage,
  ToolMessage,
} from '@langchain/core/messages';
import { HumanMessagePromptTemplate } from '@langchain/core/prompts';
import { Command, Overwrite, Send } from '@langchain/langgraph';
import { DeltaSnapshot } from '@langchain/langgraph-checkpoint';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { wireMessage } from './message-body.ts';
import { addressOf, Packer } from './packer.ts';

const there = (value: unknown): unknown => new Packer().unpack(new Packer().pack(value));

describe('values', () => {
  test('JSON comes back equal, whatever its keys are called', () => {
    const key = fc.oneof(fc.string(), fc.constantFrom('$m', '$x', '__proto__', 'constructor', 'lc', 'toJSON'));
    const json = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.string(),
        fc.integer(),
        fc.boolean(),
        fc.constant(null),
        tie('list'),
        tie('record'),
      ),
      list: fc.array(tie('value'), { maxLength: 5 }),
      record: fc.array(fc.tuple(key, tie('value')), { maxLength: 5 }).map((entries) => {
        const record: Record<string, unknown> = {};
        for (const [name, value] of entries)
          Object.defineProperty(record, name, { value, enumerable: true, writable: true, configurable: true });
        return record;
      }),
    })).value;
    fc.assert(
      fc.property(json, (value) => {
        expect(there(value)).toEqual(value);
      }),
    );
  });

  test('what JSON cannot say comes back, at any depth', () => {
    const value = {
      undefined: undefined,
      list: [undefined, Number.NaN, Number.POSITIVE_INFINITY, 10n ** 30n],
      set: new Set([1, new Set(['deep'])]),
      map: new Map<unknown, unknown>([
        ['key', { set: new Set([1]) }],
        [{ object: 1 }, undefined],
      ]),
      bytes: new Uint8Array([0, 255, 128, 1]),
      buffer: Buffer.from('text'),
      date: new Date(1_700_000_000_123),
      noDate: new Date(Number.NaN),
      pattern: /a+/giu,
      error: new RangeError('too far'),
      delta: new DeltaSnapshot([new HumanMessage({ id: 'h', content: 'hi' })]),
      trap: { $m: 'not a message', $x: ['set', []] },
    };
    const back = there(value) as typeof value;
    expect(back).toEqual({ ...value, buffer: new Uint8Array(Buffer.from('text')) });
    expect('undefined' in back).toBe(true);
    expect(back.error.name).toBe('RangeError');
    expect(back.delta).toBeInstanceOf(DeltaSnapshot);
  });

  test('a value that was packed is not changed', () => {
    const inner = { set: new Set([1]), list: [1, { a: undefined }] };
    const copy = { set: new Set([1]), list: [1, { a: undefined }] };
    new Packer().pack(inner);
    expect(inner).toEqual(copy);
  });

  test('Send, Overwrite and Command come back as LangGraph reads them', () => {
    const message = new HumanMessage({ id: 'h', content: 'hi' });
    const [send, overwrite, command] = there([
      new Send('tools', { messages: [message], index: 0 }),
      new Overwrite([message]),
      new Command({ update: { messages: [message] }, goto: 'next' }),
    ]) as [Send, unknown, Command];
    expect(send.node).toBe('tools');
    expect(send.args.messages[0]).toBeInstanceOf(HumanMessage);
    expect(Overwrite.isInstance(overwrite)).toBe(true);
    expect(command).toBeInstanceOf(Command);
    expect(command.goto).toEqual(['next']);
    expect((command.update as { messages: BaseMessage[] }).messages[0]).toBeInstanceOf(HumanMessage);
  });

  test('a value that refers to itself is refused with what to do', () => {
    const round: Record<string, unknown> = {};
    round.self = round;
    expect(() => new Packer().pack(round)).toThrow(/refers to itself; store a flat value/);
  });

  test('an object that only the asynchronous loader knows survives the saver, and is refused elsewhere', async () => {
    const packer = new Packer();
    const packed = packer.pack({ prompt: HumanMessagePromptTemplate.fromTemplate('Hello {name}') });
    expect(() => packer.unpack(packed)).toThrow(/asynchronously/);
    const [value] = (await packer.unpackAll([packed.json], packed.messages, false)) as [{ prompt: unknown }];
    expect(value.prompt).toBeInstanceOf(HumanMessagePromptTemplate);
  });
});

const call = { id: 'c1', name: 'bash', args: { command: 'ls' }, type: 'tool_call' as const };
const MESSAGES: readonly BaseMessage[] = [
  new HumanMessage({ id: 'h', content: 'hi', name: 'ann', additional_kwargs: { hidden: true } }),
  new HumanMessage({
    content: [
      { type: 'text', text: 'see' },
      { type: 'image_url', image_url: { url: 'data:,' } },
    ],
  }),
  new SystemMessage('be good'),
  new AIMessage({
    id: 'a',
    content: '',
    tool_calls: [call],
    invalid_tool_calls: [{ id: 'c2', name: 'x', args: '{', error: 'no JSON', type: 'invalid_tool_call' }],
    usage_metadata: { input_tokens: 1, output_tokens: 2, total_tokens: 3 } as never,
    response_metadata: { model: 'demo' } as Record<string, unknown>,
  }),
  new AIMessageChunk({
    id: 'k',
    content: 'part',
    tool_call_chunks: [{ id: 'c1', name: 'bash', args: '{"command":"ls"}', index: 0 }],
  }),
  new ToolMessage({
    id: 't',
    content: 'out',
    tool_call_id: 'c1',
    name: 'bash',
    status: 'error',
    artifact: { files: new Set(['a']) },
  }),
  new RemoveMessage({ id: 'h' }),
  new ChatMessage({ content: 'hm', role: 'critic' }),
  new FunctionMessage({ content: 'f', name: 'fn' }),
  new HumanMessageChunk({ content: 'chunk' }),
];

describe('messages', () => {
  test.each(MESSAGES.map((message) => [message.constructor.name, message] as const))(
    '%s comes back as itself',
    (_name, message) => {
      const back = there([message]) as [BaseMessage];
      expect(back[0].constructor).toBe(message.constructor);
      expect(back[0].toJSON()).toEqual(message.toJSON());
      expect(new Packer().known(back[0]).hash).toBe(new Packer().known(message).hash);
    },
  );

  test('a body is the dictionary that clients read, without empty fields', () => {
    const bodies = new Packer().pack(MESSAGES.slice(0, 6)).messages.map(({ body }) => JSON.parse(body));
    expect(bodies[0]).toEqual({
      type: 'human',
      id: 'h',
      content: 'hi',
      name: 'ann',
      additional_kwargs: { hidden: true },
    });
    expect(bodies[2]).toEqual({ type: 'system', content: 'be good' });
    expect(bodies[3]).toMatchObject({
      type: 'ai',
      id: 'a',
      content: '',
      tool_calls: [call],
      response_metadata: { model: 'demo' },
    });
    expect(bodies[4]).toMatchObject({ type: 'AIMessageChunk', id: 'k' });
    expect(bodies[5]).toMatchObject({ type: 'tool', tool_call_id: 'c1', status: 'error' });
    expect(wireMessage(MESSAGES[5] as BaseMessage)).toMatchObject({ artifact: { files: ['a'] } });
  });

  test('raw tool calls that could not be parsed come back without a warning', () => {
    const raw = [{ id: 'c', type: 'function' as const, function: { name: 'x', arguments: '{' } }];
    const warned: unknown[] = [];
    const original = console.warn;
    console.warn = (...parts: unknown[]) => void warned.push(parts);
    try {
      const message = new AIMessage({ id: 'a', content: '', additional_kwargs: { tool_calls: raw } });
      warned.length = 0;
      const back = there(message) as AIMessage;
      expect(back.additional_kwargs.tool_calls).toEqual(raw);
      expect(back.invalid_tool_calls).toHaveLength(1);
    } finally {
      console.warn = original;
    }
    expect(warned).toEqual([]);
  });

  test('a message inside a message stays one', () => {
    const inner = new AIMessage({ id: 'in', content: 'inner' });
    const outer = new ToolMessage({ id: 'out', content: '', tool_call_id: 'c', artifact: { from: inner } });
    const back = there(outer) as ToolMessage;
    expect(back.artifact.from).toBeInstanceOf(AIMessage);
    expect(back.artifact.from.content).toBe('inner');
  });

  test('equal content has one address and travels once', () => {
    const twice = [new HumanMessage({ id: 'h', content: 'hi' }), new HumanMessage({ id: 'h', content: 'hi' })];
    const { json, messages } = new Packer().pack(twice);
    expect(messages).toHaveLength(1);
    const [message] = messages;
    expect(message?.hash).toBe(addressOf(message?.body ?? ''));
    expect(JSON.parse(json)).toEqual([{ $m: message?.hash }, { $m: message?.hash }]);
  });
});

describe('identity', () => {
  /** Counts how often a message is serialized. */
  class Counted extends HumanMessage {
    times = 0;
    override toJSON() {
      this.times += 1;
      return super.toJSON();
    }
  }

  test('an unchanged object is serialized once', () => {
    const packer = new Packer();
    const message = new Counted({ id: 'h', content: 'hi' });
    packer.packNew([message]);
    packer.packNew([message, message]);
    packer.wire([message]);
    expect(message.times).toBe(1);
  });

  test('a new id, content or list of tool calls on the same object is noticed', () => {
    const packer = new Packer();
    const message = new AIMessage({ content: 'first' });
    const hashes = new Set([packer.known(message).hash]);
    message.id = 'a';
    hashes.add(packer.known(message).hash);
    message.content = 'second';
    hashes.add(packer.known(message).hash);
    message.tool_calls = [call];
    hashes.add(packer.known(message).hash);
    expect(hashes.size).toBe(4);
  });

  test('a body that the store has does not travel again', () => {
    const packer = new Packer();
    const [one, two] = [new HumanMessage({ id: '1', content: 'one' }), new HumanMessage({ id: '2', content: 'two' })];
    expect(packer.packNew([one]).messages).toHaveLength(1);
    expect(packer.packNew([one, two]).messages.map(({ id }) => id)).toEqual(['2']);
    expect(packer.pack([one, two]).messages).toHaveLength(2);
    packer.markStored(new Packer().pack(new HumanMessage({ id: '3', content: 'three' })).messages);
    expect(packer.packNew(new HumanMessage({ id: '3', content: 'three' })).messages).toEqual([]);
  });

  test('a loaded message keeps its address, and is one object wherever it stands', async () => {
    const packed = new Packer().pack([MESSAGES[0], MESSAGES[0]]);
    const packer = new Packer();
    const [first, second] = (await packer.unpackAll([packed.json, packed.json], packed.messages, true)) as [
      BaseMessage[],
      BaseMessage[],
    ];
    expect(first[0]).toBe(first[1]);
    expect(first[0]).toBe(second[0]);
    expect(packer.packNew(first)).toEqual({ json: packed.json, messages: [] });
  });

  test('a body that is missing is a loud fault', () => {
    expect(() => new Packer().unpack({ json: '{"$m":"AAAAAAAAAAAAAAAAAAAAAA"}', messages: [] })).toThrow(/missing/);
  });
});
