import { AIMessage, type AIMessageChunk, HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import type { Clock } from '@reindeer/protocol';
import { describe, expect, test } from 'vitest';
import { ScriptedChatModel } from './model.ts';
import { type ScriptRequest, turns } from './script.ts';

const bash = tool(() => 'out', {
  name: 'bash',
  description: 'Runs a command.',
  schema: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
});

async function collect(stream: AsyncIterable<AIMessageChunk>): Promise<AIMessageChunk[]> {
  const chunks: AIMessageChunk[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

describe('the scripted model', () => {
  test('streams piece by piece and gives the same message whole', async () => {
    const turn = {
      text: 'Hello there.',
      reasoning: 'Greet.',
      toolCalls: [{ name: 'bash', args: { command: 'ls' } }],
      usage: { inputTokens: 3, outputTokens: 2 },
      pieceSize: 2,
    };
    const model = new ScriptedChatModel({ script: () => turn });
    const chunks = await collect(await model.stream('hi'));
    expect(chunks.filter((chunk) => chunk.text !== '').length).toBe(6);
    const [first, ...others] = chunks;
    const streamed = others.reduce((sum, chunk) => sum.concat(chunk), first as AIMessageChunk);
    const whole = await model.invoke('hi');
    for (const message of [streamed, whole]) {
      expect(message.text).toBe('Hello there.');
      expect(message.additional_kwargs.reasoning_content).toBe('Greet.');
      expect(message.tool_calls).toMatchObject([{ name: 'bash', args: { command: 'ls' } }]);
      expect(message.usage_metadata).toMatchObject({ input_tokens: 3, output_tokens: 2, total_tokens: 5 });
      expect(message.response_metadata).toMatchObject({ finish_reason: 'tool_calls' });
    }
    expect(whole).toBeInstanceOf(AIMessage);
  });

  test('shows the script the conversation, the tools and the caller', async () => {
    const seen: ScriptRequest[] = [];
    const model = new ScriptedChatModel({
      script: (request) => {
        seen.push(request);
        return { text: 'x' };
      },
    });
    await model
      .bindTools([bash])
      .invoke(
        [
          new HumanMessage('hi'),
          new AIMessage({ content: '', tool_calls: [{ id: 'a', name: 'bash', args: { command: 'ls' } }] }),
          new ToolMessage({ content: 'no', tool_call_id: 'a', status: 'error' }),
        ],
        { caller: 'title' },
      );
    expect(seen[0]?.caller).toBe('title');
    expect(seen[0]?.tools).toMatchObject([{ name: 'bash', parameters: { required: ['command'] } }]);
    expect(seen[0]?.messages).toMatchObject([
      { role: 'user', text: 'hi' },
      { role: 'assistant', toolCalls: [{ id: 'a', name: 'bash', args: { command: 'ls' } }] },
      { role: 'tool', text: 'no', toolCallId: 'a', toolName: 'bash', failed: true },
    ]);
  });

  test('throws the faults as the real clients do', async () => {
    const model = new ScriptedChatModel({
      script: turns([
        [
          { fault: { kind: 'status', status: 503, retryAfter: 1 } },
          { text: 'abcdefghijklmnop', fault: { kind: 'cut', afterPieces: 1 }, pieceSize: 1 },
          { text: 'fine' },
        ],
      ]),
    });
    await expect(model.invoke('hi')).rejects.toMatchObject({ status: 503, headers: { 'retry-after': '1' } });
    await expect(model.invoke('hi')).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect((await model.invoke('hi')).text).toBe('fine');
  });

  test('stops at its signal, in the middle of a wait and in a hang', async () => {
    const asleep = Promise.withResolvers<void>();
    const clock: Clock = {
      now: () => 0,
      monotonic: () => 0,
      sleep: (_milliseconds, signal) =>
        new Promise((_resolve, reject) => {
          signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
          asleep.resolve();
        }),
    };
    const leave = new AbortController();
    const slow = new ScriptedChatModel({ script: () => ({ text: 'x', delayMs: 1_000_000 }), clock });
    const asking = slow
      .stream('hi', { signal: leave.signal })
      .then(collect)
      .then(
        () => 'answered',
        () => 'left',
      );
    await asleep.promise;
    leave.abort();
    expect(await asking).toBe('left');

    const hang = new ScriptedChatModel({
      script: () => ({ text: 'xy', pieceSize: 1, fault: { kind: 'hang', afterPieces: 1 } }),
    });
    const second = new AbortController();
    const chunks: string[] = [];
    await expect(
      (async () => {
        for await (const chunk of await hang.stream('hi', { signal: second.signal })) {
          chunks.push(chunk.text);
          second.abort();
        }
      })(),
    ).rejects.toThrow();
    expect(chunks).toEqual(['x']);
  });

  test('counts tokens without a download', async () => {
    expect(await new ScriptedChatModel({ script: () => ({}) }).getNumTokens('12345678')).toBe(2);
  });
});
