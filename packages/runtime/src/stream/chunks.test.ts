import { AIMessageChunk } from '@langchain/core/messages';
import type { WireMessage } from '@reindeer/protocol';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { mergeAll, mergeChunks } from './chunks.ts';

const chunk = (fields: object): WireMessage => ({ type: 'AIMessageChunk', id: 'm', content: '', ...fields });

/** What the SDK makes of chunks: LangChain's own concatenation. */
function live(chunks: readonly WireMessage[]): AIMessageChunk {
  const made = chunks.map(({ type: _type, ...fields }) => new AIMessageChunk(fields as never));
  return made.reduce((left, right) => left.concat(right));
}

const essence = (message: AIMessageChunk) => ({
  content: message.content,
  calls: message.tool_calls,
  raw: message.tool_call_chunks,
  additional: message.additional_kwargs,
  usage: message.usage_metadata,
});

describe('merging chunks', () => {
  test('texts, reasoning and tool call arguments continue each other', () => {
    const merged = mergeChunks(
      chunk({
        content: 'a',
        additional_kwargs: { reasoning_content: 'x' },
        tool_call_chunks: [{ index: 0, id: 'c', name: 'f', args: '{"p"' }],
      }),
      chunk({
        content: 'b',
        additional_kwargs: { reasoning_content: 'x' },
        tool_call_chunks: [{ index: 0, args: ':1}' }],
      }),
    );
    expect(merged).toEqual(
      chunk({
        content: 'ab',
        additional_kwargs: { reasoning_content: 'xx' },
        tool_call_chunks: [{ index: 0, id: 'c', name: 'f', args: '{"p":1}' }],
      }),
    );
  });

  test('what is not certain stays apart', () => {
    expect(mergeChunks(chunk({ content: 'a' }), chunk({ content: [{ type: 'text', text: 'b' }] }))).toBeNull();
    expect(mergeAll([chunk({ content: 'a' }), chunk({ content: [{ type: 'text', text: 'b' }] })])).toHaveLength(2);
    expect(
      mergeChunks(chunk({ response_metadata: { model: 'a' } }), chunk({ response_metadata: { model: 'b' } })),
    ).toBeNull();
  });

  test('a client that gets merged chunks has the same message as one that gets each', () => {
    const piece = fc.record({
      content: fc.string({ maxLength: 5 }),
      additional_kwargs: fc.option(fc.record({ reasoning_content: fc.string({ maxLength: 3 }) }), { nil: {} }),
      tool_call_chunks: fc.array(
        fc.record({
          index: fc.integer({ min: 0, max: 1 }),
          args: fc.string({ maxLength: 3 }),
          type: fc.constant('tool_call_chunk'),
        }),
        { maxLength: 2 },
      ),
    });
    fc.assert(
      fc.property(fc.array(piece, { minLength: 1, maxLength: 6 }), (pieces) => {
        const chunks = pieces.map(chunk);
        expect(essence(live(mergeAll(chunks)))).toEqual(essence(live(chunks)));
      }),
    );
  });

  test('content blocks continue the block of their index', () => {
    const text = (index: number, value: string) => ({ type: 'text', index, text: value });
    const chunks = [[text(0, 'a')], [text(0, 'b')], [text(1, 'c')], [text(0, 'd'), text(1, 'e')]].map((content) =>
      chunk({ content }),
    );
    const merged = mergeAll(chunks);
    expect(merged).toHaveLength(1);
    expect(essence(live(merged))).toEqual(essence(live(chunks)));
  });

  test('usage is summed', () => {
    const usage = (n: number) => ({ input_tokens: n, output_tokens: n, total_tokens: 2 * n });
    expect(
      mergeChunks(chunk({ usage_metadata: usage(1) }), chunk({ usage_metadata: usage(2) }))?.usage_metadata,
    ).toEqual(usage(3));
  });
});
