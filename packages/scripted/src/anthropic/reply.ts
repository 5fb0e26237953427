import { parseObject } from '../checking.ts';
import type { Encoder, EncoderInput } from '../encoder.ts';
import { signThinking } from './request.ts';

type Block = 'thinking' | 'text' | 'tool_use';

const STOP_REASONS = {
  stop: 'end_turn',
  tool_calls: 'tool_use',
  length: 'max_tokens',
  content_filter: 'refusal',
} as const;

/** Messages: one content block after the other, each opened, filled by deltas, closed. Without `thinking` reasoning is left out. */
export function anthropicEncoder(input: EncoderInput & { readonly thinking: boolean }): Encoder {
  const { answer, model } = input;
  const event = (type: string, value: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...value })}\n\n`;
  const inputUsage = {
    input_tokens: answer.usage?.inputTokens ?? 0,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 0,
  };
  let index = -1;
  let current: Block | null = null;

  const closeBlock = () => {
    if (current === null) return '';
    const signature =
      current === 'thinking'
        ? event('content_block_delta', {
            index,
            delta: { type: 'signature_delta', signature: signThinking(answer.reasoning) },
          })
        : '';
    current = null;
    return `${signature}${event('content_block_stop', { index })}`;
  };
  const openBlock = (block: Block, content: object) => {
    const closed = closeBlock();
    index += 1;
    current = block;
    return `${closed}${event('content_block_start', { index, content_block: { type: block, ...content } })}`;
  };
  const delta = (value: object) => event('content_block_delta', { index, delta: value });

  return {
    open: () =>
      `${event('message_start', {
        message: {
          id: `msg_${answer.id}`,
          type: 'message',
          role: 'assistant',
          model,
          content: [],
          stop_reason: null,
          stop_sequence: null,
          usage: { ...inputUsage, output_tokens: 0 },
        },
      })}${event('ping', {})}`,
    piece(piece) {
      switch (piece.kind) {
        case 'reasoning': {
          if (!input.thinking) return '';
          const opened = current === 'thinking' ? '' : openBlock('thinking', { thinking: '', signature: '' });
          return `${opened}${delta({ type: 'thinking_delta', thinking: piece.text })}`;
        }
        case 'text': {
          const opened = current === 'text' ? '' : openBlock('text', { text: '' });
          return `${opened}${delta({ type: 'text_delta', text: piece.text })}`;
        }
        case 'call':
          return openBlock('tool_use', { id: piece.id, name: piece.name, input: {} });
        case 'arguments':
          return delta({ type: 'input_json_delta', partial_json: piece.text });
      }
    },
    close: () =>
      `${closeBlock()}${event('message_delta', {
        delta: { stop_reason: STOP_REASONS[answer.finish], stop_sequence: null },
        usage: { output_tokens: answer.usage?.outputTokens ?? 0 },
      })}${event('message_stop', {})}`,
    errorEvent: (message) => event('error', { error: { type: 'overloaded_error', message } }),
    whole: () => ({
      id: `msg_${answer.id}`,
      type: 'message',
      role: 'assistant',
      model,
      content: [
        ...(input.thinking && answer.reasoning !== ''
          ? [{ type: 'thinking', thinking: answer.reasoning, signature: signThinking(answer.reasoning) }]
          : []),
        ...(answer.text === '' ? [] : [{ type: 'text', text: answer.text }]),
        // The whole form carries parsed arguments, so a malformed text can only show in the stream.
        ...answer.calls.map((call) => ({
          type: 'tool_use',
          id: call.id,
          name: call.name,
          input: parseObject(call.args) ?? {},
        })),
      ],
      stop_reason: STOP_REASONS[answer.finish],
      stop_sequence: null,
      usage: { ...inputUsage, output_tokens: answer.usage?.outputTokens ?? 0 },
    }),
  };
}

/** The error body of this format for an HTTP status. */
export function anthropicError(status: number, message: string): unknown {
  const types: Readonly<Record<number, string>> = {
    400: 'invalid_request_error',
    401: 'authentication_error',
    404: 'not_found_error',
    413: 'request_too_large',
    429: 'rate_limit_error',
    529: 'overloaded_error',
  };
  return { type: 'error', error: { type: types[status] ?? 'api_error', message }, request_id: null };
}
