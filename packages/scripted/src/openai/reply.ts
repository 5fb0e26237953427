import type { Encoder, EncoderInput } from '../encoder.ts';

/** Chat completions: chunks and the whole body. Usage comes in a last chunk without choices, and only when it was asked for. */
export function openAiEncoder(input: EncoderInput & { readonly includeUsage: boolean }): Encoder {
  const { answer, model } = input;
  const created = Math.floor(input.now / 1000);
  const head = { id: `chatcmpl-${answer.id}`, created, model, system_fingerprint: null };
  const usage =
    answer.usage === null
      ? null
      : {
          prompt_tokens: answer.usage.inputTokens,
          completion_tokens: answer.usage.outputTokens,
          total_tokens: answer.usage.inputTokens + answer.usage.outputTokens,
        };

  const event = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
  const chunk = (delta: object, finish: string | null) =>
    event({
      ...head,
      object: 'chat.completion.chunk',
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(input.includeUsage ? { usage: null } : {}),
    });

  return {
    open: () => chunk({ role: 'assistant', content: '' }, null),
    piece(piece) {
      switch (piece.kind) {
        case 'reasoning':
          return chunk({ reasoning_content: piece.text }, null);
        case 'text':
          return chunk({ content: piece.text }, null);
        case 'call':
          return chunk(
            {
              tool_calls: [
                { index: piece.index, id: piece.id, type: 'function', function: { name: piece.name, arguments: '' } },
              ],
            },
            null,
          );
        case 'arguments':
          return chunk({ tool_calls: [{ index: piece.index, function: { arguments: piece.text } }] }, null);
      }
    },
    close() {
      const last = chunk({}, answer.finish);
      const counted =
        input.includeUsage && usage !== null
          ? event({ ...head, object: 'chat.completion.chunk', choices: [], usage })
          : '';
      return `${last}${counted}data: [DONE]\n\n`;
    },
    errorEvent: (message) => event(openAiError(500, message, null)),
    whole: () => ({
      ...head,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: answer.text === '' && answer.calls.length > 0 ? null : answer.text,
            ...(answer.reasoning === '' ? {} : { reasoning_content: answer.reasoning }),
            ...(answer.calls.length === 0
              ? {}
              : {
                  tool_calls: answer.calls.map((call) => ({
                    id: call.id,
                    type: 'function',
                    function: { name: call.name, arguments: call.args },
                  })),
                }),
            refusal: null,
          },
          logprobs: null,
          finish_reason: answer.finish,
        },
      ],
      ...(usage === null ? {} : { usage }),
    }),
  };
}

/** The error body of this format for an HTTP status. */
export function openAiError(status: number, message: string, field: string | null): unknown {
  const type =
    status === 400
      ? 'invalid_request_error'
      : status === 401
        ? 'authentication_error'
        : status === 404
          ? 'not_found_error'
          : status === 429
            ? 'rate_limit_error'
            : 'server_error';
  const code = status === 429 ? 'rate_limit_exceeded' : status === 401 ? 'invalid_api_key' : null;
  return { error: { message, type, param: field, code } };
}
