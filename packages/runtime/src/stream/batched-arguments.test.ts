import type { StreamEvent, WireMessage } from '@reindeer/protocol';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { Bell } from '../common/waiting.ts';
import { collect, world } from '../testing/world.ts';
import { OrderedTokens } from '../writes/ordered-tokens.ts';
import { TokenHub } from './token-hub.ts';

/** A piece of the arguments of a tool that writes a file. */
const piece = (id: string, args: string): WireMessage => ({
  type: 'AIMessageChunk',
  id,
  content: '',
  tool_call_chunks: [{ type: 'tool_call_chunk', index: 0, args }],
});
const argsOf = (chunk: WireMessage): string =>
  ((chunk.tool_call_chunks ?? []) as { args: string }[]).map(({ args }) => args).join('');

function scene() {
  const { clock } = testSurroundings();
  const hub = new TokenHub({ clock, bell: new Bell(), flushMs: 30, head: 5 });
  const frames = () => {
    const seen: { ns: string; seq: number; args: string }[] = [];
    let position = { seq: 0, n: 0 };
    for (let next = hub.next(position, 0); next !== null; next = hub.next(position, 0)) {
      const { frame } = next;
      position = frame.position;
      seen.push({ ns: frame.ns, seq: position.seq, args: frame.chunks.map(argsOf).join('') });
    }
    return seen;
  };
  return { clock, hub, frames };
}

test('pieces of arguments go out together, and no batch grows past its bound', verifies('RT-29'), () => {
  const { hub, frames } = scene();
  const line = 'x'.repeat(100);
  // On a clock that stands still: nothing but the bound ends a batch.
  for (let n = 0; n < 2_000; n += 1) hub.push(piece('m', line), {});
  const sent = frames();
  expect(sent.length).toBeGreaterThan(5);
  expect(sent.length).toBeLessThan(20);
  expect(Math.max(...sent.map(({ args }) => args.length))).toBeLessThanOrEqual(33_000);
  hub.flush();
  expect(frames().reduce((sum, { args }) => sum + args.length, 0)).toBe(200_000);
});

test('what waits goes out before the values that it leads to', verifies('RT-29'), () => {
  const { hub, frames } = scene();
  for (const args of ['{"a', '":', '1}']) hub.push(piece('m', args), {});
  expect(frames().map(({ args }) => args)).toEqual(['{"a']);
  // The fact of the finished message: a reader tells the hub before it delivers it.
  hub.noteHead(6);
  expect(frames()).toEqual([
    { ns: '', seq: 5, args: '{"a' },
    { ns: '', seq: 5, args: '":1}' },
  ]);
});

test('calls that are written at once, each in a namespace of its own, do not mix', verifies('RT-29'), () => {
  const { hub, frames } = scene();
  const ordered = new OrderedTokens(hub, { sent: 1, idle: false });
  for (let n = 0; n < 300; n += 1) {
    ordered.push(piece('one', 'a'), {}, ['tools:1']);
    ordered.push(piece('two', 'b'), {}, ['tools:2']);
  }
  // Behind a write that is slow: as many pieces as there are messages, not as many as were said.
  expect(ordered.waiting).toBe(2);
  ordered.release(1);
  hub.flush();
  expect(frames()).toEqual([
    { ns: 'tools:1', seq: 5, args: 'a'.repeat(300) },
    { ns: 'tools:2', seq: 5, args: 'b'.repeat(300) },
  ]);
});

test('when the model breaks off, what it had said reaches the readers before the end', verifies('RT-29'), async () => {
  const w = world({
    script: {
      model: (_messages, context) => {
        for (const args of ['{"path":', '"/mnt', '/x']) context.tokens.push(piece('m', args), {});
        throw new Error('the provider cut the stream');
      },
    },
  });
  await w.runtime.start();
  const run = await w.admitted({ request: { streamModes: ['values', 'messages-tuple'] } });
  const events: StreamEvent[] = await collect(w.read(run));
  const said = events.filter(({ event }) => event === 'messages').map(({ data }) => argsOf(JSON.parse(data)[0]));
  expect(said.join('')).toBe('{"path":"/mnt/x');
  expect(events.findLastIndex(({ event }) => event === 'messages')).toBeLessThan(
    events.findIndex(({ event }) => event === 'error'),
  );
  expect((await w.ended(run)).status).toBe('error');
  await w.runtime.stop();
});
