import { conversationKey, type ScriptRequest, type Turn } from './script.ts';

/** A turn cut into what goes over the wire piece by piece, before any provider's format. */
export type Piece =
  | { readonly kind: 'reasoning'; readonly text: string }
  | { readonly kind: 'text'; readonly text: string }
  /** The first piece of a call carries its name and id, the others only more of the arguments. */
  | { readonly kind: 'call'; readonly index: number; readonly id: string | null; readonly name: string }
  | { readonly kind: 'arguments'; readonly index: number; readonly text: string };

export interface Answer {
  /** Derived from the conversation, so that the same conversation gets the same id. */
  readonly id: string;
  readonly pieces: readonly Piece[];
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly { readonly id: string | null; readonly name: string; readonly args: string }[];
  readonly finish: 'stop' | 'tool_calls' | 'length' | 'content_filter';
  readonly usage: { readonly inputTokens: number; readonly outputTokens: number } | null;
}

/** Works out what a turn puts on the wire. */
export function answer(request: ScriptRequest, turn: Turn): Answer {
  const id = conversationKey(request);
  const size = Math.max(1, turn.pieceSize ?? 12);
  const calls = (turn.toolCalls ?? []).map((call, index) => ({
    id: call.id === undefined ? `call_${id}_${index}` : call.id,
    name: call.name,
    args: typeof call.args === 'string' ? call.args : JSON.stringify(call.args),
  }));
  const pieces: Piece[] = [];
  for (const text of split(turn.reasoning ?? '', size)) pieces.push({ kind: 'reasoning', text });
  for (const text of split(turn.text ?? '', size)) pieces.push({ kind: 'text', text });
  calls.forEach((call, index) => {
    pieces.push({ kind: 'call', index, id: call.id, name: call.name });
    // A huge argument (a file's content) in tiny pieces would only test the patience of the reader.
    for (const text of split(call.args, Math.max(size, Math.ceil(call.args.length / 40)))) {
      pieces.push({ kind: 'arguments', index, text });
    }
  });
  const written = (turn.text ?? '').length + (turn.reasoning ?? '').length;
  const called = calls.reduce((sum, call) => sum + call.name.length + call.args.length, 0);
  return {
    id,
    pieces,
    text: turn.text ?? '',
    reasoning: turn.reasoning ?? '',
    calls,
    finish: turn.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop'),
    usage:
      turn.usage === undefined
        ? { inputTokens: estimateInput(request), outputTokens: Math.ceil((written + called) / 4) }
        : turn.usage,
  };
}

function estimateInput(request: ScriptRequest): number {
  let length = 0;
  for (const message of request.messages) length += message.text.length + 8;
  return Math.ceil(length / 4);
}

/** Splits by code points, so that no piece ends inside one. */
function split(text: string, size: number): string[] {
  if (text === '') return [];
  const parts: string[] = [];
  let part = '';
  let count = 0;
  for (const character of text) {
    part += character;
    count += 1;
    if (count === size) {
      parts.push(part);
      part = '';
      count = 0;
    }
  }
  if (part !== '') parts.push(part);
  return parts;
}
