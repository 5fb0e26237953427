import fc from 'fast-check';
import { expect, test } from 'vitest';
import { allMessages, type ChatEvent, type ChatState, emptyChat, reduceChat } from './state.ts';

const ids = fc.constantFrom('h1', 'a1', 't1', 'a2', 'h2');
const wire = (id: string, text: string) => ({
  type: id.startsWith('h') ? 'human' : id.startsWith('t') ? 'tool' : 'ai',
  id,
  content: text,
  ...(id.startsWith('t') ? { tool_call_id: 'c' } : {}),
});
const part = (event: string, data: unknown): ChatEvent => ({ kind: 'part', event, data });

/** Everything a server, good or bad, could send, in any order. */
const event: fc.Arbitrary<ChatEvent> = fc.oneof(
  fc
    .record({ id: ids, text: fc.string() })
    .map(({ id, text }) => part('messages', [{ ...wire(id, text), type: 'AIMessageChunk' }, {}])),
  fc.record({ id: ids, text: fc.string() }).map(({ id, text }) => part('messages', [wire(id, text), {}])),
  ids.map((id) => part('messages', [{ type: 'remove', id, content: '' }, {}])),
  fc.array(ids).map((list) => part('values', { messages: list.map((id) => wire(id, 'x')) })),
  fc.anything().map((data) => part('values', data)),
  fc.anything().map((data) => part('messages', [data, {}])),
  fc.anything().map((data) => part('custom', data)),
  ids.map((id) => ({ kind: 'submitted', message: wire(id, 'x') }) as const),
  fc.constant<ChatEvent>({ kind: 'run', runId: 'r' }),
  fc.constant<ChatEvent>({ kind: 'stopping' }),
  fc.constant<ChatEvent>({ kind: 'ended', ended: { how: 'success', trouble: null } }),
);

const idsOf = (state: ChatState) => allMessages(state).map((message) => message.id);

test('whatever comes, nothing throws, no message shows twice, and the loaded state has the last word', () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 40 }), fc.uniqueArray(ids), (events, final) => {
      let state = emptyChat('t');
      for (const entry of events) {
        state = reduceChat(state, entry);
        const shown = idsOf(state);
        expect(new Set(shown).size).toBe(shown.length);
      }
      state = reduceChat(state, { kind: 'ended', ended: { how: 'success', trouble: null } });
      state = reduceChat(state, {
        kind: 'loaded',
        values: { messages: final.map((id) => wire(id, 'x')) },
        next: [],
        interrupts: [],
      });
      expect(idsOf(state)).toEqual(final);
    }),
    { numRuns: 300 },
  );
});

test('however a text is cut into pieces, it is put together again', () => {
  fc.assert(
    fc.property(fc.array(fc.string(), { minLength: 1 }), (pieces) => {
      fc.pre(!pieces.join('').trimStart().startsWith('<think>'));
      const state = pieces.reduce(
        (now, text) => reduceChat(now, part('messages', [{ ...wire('a1', text), type: 'AIMessageChunk' }, {}])),
        emptyChat('t'),
      );
      expect(allMessages(state)[0]?.text).toBe(pieces.join(''));
    }),
  );
});
