import type { FramePosition, WireMessage } from '@reindeer/protocol';
import { testSurroundings } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { Bell } from '../common/waiting.ts';
import type { HubLimits } from './frames.ts';
import { TokenHub } from './token-hub.ts';

function scene(limits?: HubLimits) {
  const { clock } = testSurroundings();
  const hub = new TokenHub({
    clock,
    bell: new Bell(),
    flushMs: 30,
    head: 5,
    ...(limits === undefined ? {} : { limits }),
  });
  const say = (id: string, content: string) => hub.push({ type: 'AIMessageChunk', id, content }, {});
  /** Everything after a position, joined by message as a client does. */
  const read = (from: FramePosition = { seq: 0, n: 0 }, had: Record<string, string> = {}) => {
    const texts = { ...had };
    let frames = 0;
    let position = from;
    for (let next = hub.next(position, 99); next !== null; next = hub.next(position, 99)) {
      const { frame, startOver } = next;
      const text = frame.chunks.map((chunk: WireMessage) => chunk.content).join('');
      texts[frame.messageId] = (startOver ? '' : (texts[frame.messageId] ?? '')) + text;
      position = frame.position;
      frames += 1;
    }
    return { texts, position, frames };
  };
  return { clock, hub, say, read };
}

describe('the token hub', () => {
  test('the first token goes out at once, the next ones together', async () => {
    const s = scene();
    s.say('m', 'a');
    expect(s.hub.size.frames).toBe(1);
    s.say('m', 'b');
    s.say('m', 'c');
    expect(s.hub.size.frames).toBe(1);
    await s.clock.advance(30);
    expect(s.hub.size.frames).toBe(2);
    expect(s.read().texts).toEqual({ m: 'abc' });
    s.hub.close();
    expect(s.clock.sleeping).toBe(0);
  });

  test('a joiner gets what was written so far as one frame, and then what follows', async () => {
    const s = scene();
    for (const word of ['a', 'b', 'c', 'd']) {
      s.say('m', word);
      await s.clock.advance(30);
    }
    const first = s.read();
    expect(first).toMatchObject({ texts: { m: 'abcd' }, frames: 1 });
    s.say('m', 'e');
    s.hub.flush();
    expect(s.read(first.position, first.texts).texts).toEqual({ m: 'abcde' });
  });

  test('frames stand after the newest fact; what was pending when a fact came stands before it', () => {
    const s = scene();
    s.say('m', 'a');
    s.say('m', 'b');
    s.hub.noteHead(6);
    s.say('m', 'c');
    s.hub.flush();
    const seqs: number[] = [];
    let position: FramePosition = { seq: 0, n: 0 };
    for (let next = s.hub.next(position, 5); next !== null; next = s.hub.next(position, 5)) {
      position = next.frame.position;
      seqs.push(position.seq);
    }
    expect(seqs).toEqual([5, 6]);
  });

  test('parallel messages keep their order and their texts from any position', async () => {
    const s = scene();
    const positions: { position: FramePosition; texts: Record<string, string> }[] = [];
    for (let i = 0; i < 20; i += 1) {
      s.say(`m${i % 3}`, `${i},`);
      await s.clock.advance(30);
      positions.push(s.read());
    }
    const whole = s.read().texts;
    for (const { position, texts } of positions) expect(s.read(position, texts).texts).toEqual(whole);
  });

  test('folded frames: a new reader gets the text, one in the middle starts the message over', async () => {
    const s = scene({ frames: 8, messages: 4, characters: 10_000 });
    s.say('m', '0,');
    await s.clock.advance(30);
    const early = s.read();
    for (let i = 1; i < 40; i += 1) {
      s.say('m', `${i},`);
      await s.clock.advance(30);
    }
    expect(s.hub.size.frames).toBeLessThanOrEqual(8);
    const whole = Array.from({ length: 40 }, (_, i) => `${i},`).join('');
    expect(s.read().texts).toEqual({ m: whole });
    expect(s.read(early.position, early.texts).texts).toEqual({ m: whole });
  });

  test('memory is bounded: the oldest messages are forgotten', async () => {
    const s = scene({ frames: 64, messages: 4, characters: 2_000 });
    for (let i = 0; i < 50; i += 1) {
      s.say(`m${i}`, 'x'.repeat(100));
      await s.clock.advance(30);
    }
    expect(s.hub.size.messages).toBeLessThanOrEqual(4);
    expect(s.hub.size.characters).toBeLessThanOrEqual(2_000);
    expect(s.hub.has('m49')).toBe(true);
    expect(s.hub.has('m0')).toBe(false);
  });

  test('tokens without a message id, or after the close, are no frames', () => {
    const s = scene();
    s.hub.push({ type: 'AIMessageChunk', content: 'x' }, {});
    s.hub.close();
    s.say('m', 'late');
    expect(s.hub.size.frames).toBe(0);
  });
});
