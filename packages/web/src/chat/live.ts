import { type AiMessage, splitThinking, type ToolCall, textOf } from './message.ts';
import { type Dictionary, isDictionary, listOf, textOr, type WireMessage } from './wire.ts';

/** A message that is being written, put together from its pieces. */
export interface LiveMessage {
  readonly id: string;
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly LiveCall[];
}

interface LiveCall {
  readonly index: number;
  readonly id: string | null;
  readonly name: string;
  readonly args: string;
}

export function isChunk(wire: WireMessage): boolean {
  return /^AI?MessageChunk$/.test(wire.type) || (wire.type.endsWith('Chunk') && wire.type.startsWith('AI'));
}

/** Adds one piece. Pieces of one message come in order and once: the stream's event ids see to that. */
export function appendChunk(live: LiveMessage | undefined, id: string, chunk: WireMessage): LiveMessage {
  const before = live ?? { id, text: '', reasoning: '', calls: [] };
  const extra = isDictionary(chunk.additional_kwargs) ? chunk.additional_kwargs : {};
  let reasoning = before.reasoning + textOr(extra.reasoning_content, '');
  for (const block of listOf(chunk.content)) {
    if (isDictionary(block)) reasoning += textOr(block.thinking, textOr(block.reasoning, ''));
  }
  let calls = before.calls;
  for (const piece of listOf(chunk.tool_call_chunks)) {
    if (isDictionary(piece)) calls = appendCall(calls, piece);
  }
  return { id, text: before.text + textOf(chunk.content), reasoning, calls };
}

function appendCall(calls: readonly LiveCall[], piece: Dictionary): readonly LiveCall[] {
  const given = piece.index;
  // Without an index, a piece that brings a name begins a call, and any other continues the last one.
  const index =
    typeof given === 'number'
      ? given
      : typeof piece.name === 'string' && piece.name !== ''
        ? calls.length
        : Math.max(0, calls.length - 1);
  const found = calls.find((call) => call.index === index);
  const call: LiveCall = {
    index,
    id: textOr(piece.id, null) ?? found?.id ?? null,
    name: (found?.name ?? '') + textOr(piece.name, ''),
    args: (found?.args ?? '') + textOr(piece.args, ''),
  };
  return found === undefined ? [...calls, call] : calls.map((other) => (other === found ? call : other));
}

/** The message as it is shown while it grows. */
export function showLive(live: LiveMessage): AiMessage {
  const { reasoning, text } = splitThinking(live.text);
  return {
    kind: 'ai',
    id: live.id,
    text,
    reasoning: [live.reasoning, reasoning].filter((part) => part !== '').join('\n\n'),
    calls: live.calls.map(
      (call): ToolCall => ({ id: call.id, name: call.name, args: parse(call.args), argsText: call.args }),
    ),
    failed: false,
    hidden: false,
    streaming: true,
  };
}

function parse(text: string): Dictionary | null {
  try {
    const value: unknown = JSON.parse(text);
    return isDictionary(value) ? value : null;
  } catch {
    return null;
  }
}
