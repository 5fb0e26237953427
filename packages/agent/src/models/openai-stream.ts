import { ReindeerError } from '@reindeer/protocol';

type Value = Record<string, unknown>;

/** Longest silence between two pieces of an answer, in milliseconds, unless an entry says otherwise (MOD-4). */
const CHUNK_TIMEOUT_MS = 240_000;
/** The longest that a timer can wait. */
const MAX_TIMER_MS = 2_147_483_647;

/** Milliseconds that `stream_chunk_timeout` (seconds) allows between two pieces; null = any time (the value 0). */
export function chunkTimeoutOf(seconds: unknown): number | null {
  if (typeof seconds !== 'number') return CHUNK_TIMEOUT_MS;
  return seconds <= 0 ? null : Math.min(seconds * 1_000, MAX_TIMER_MS);
}

/** What the client library answers for a streamed request. */
export type RawStream<T> = AsyncIterable<T> & { readonly controller?: AbortController };

export const isStream = (answer: unknown): answer is RawStream<unknown> =>
  typeof answer === 'object' && answer !== null && Symbol.asyncIterator in answer;

/**
 * The pieces of a stream, as long as none takes longer than the time given. Then the request is ended and `model_failed` is thrown, which
 * the harness takes for a stream that went silent.
 *
 * @param timeoutMs null = any time
 */
export async function* punctual<T>(stream: RawStream<T>, timeoutMs: number | null): AsyncGenerator<T> {
  const iterator = stream[Symbol.asyncIterator]();
  let ended = false;
  try {
    for (;;) {
      const step = await (timeoutMs === null ? iterator.next() : withinTime(iterator.next(), timeoutMs));
      if (step.done === true) {
        ended = true;
        return;
      }
      yield step.value;
    }
  } finally {
    if (!ended) {
      stream.controller?.abort();
      // Not awaited: a source that is silent may never answer this either. The abort above ends its socket.
      void Promise.resolve(iterator.return?.()).catch(() => {});
    }
  }
}

async function withinTime<T>(step: Promise<T>, timeoutMs: number): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(
    () =>
      late.reject(
        new ReindeerError(
          'model_failed',
          `The stream chunk timed out: the model sent nothing for ${timeoutMs / 1_000} s. stream_chunk_timeout of its entry sets this time.`,
          { retryable: true },
        ),
      ),
    timeoutMs,
  );
  // Whichever loses the race must not end as an unhandled rejection.
  step.catch(() => {});
  try {
    return await Promise.race([step, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Makes the chunks of compatible servers look as the client expects them (MOD-5):
 * - one `usage`, the newest, after the last piece: vLLM repeats growing totals in every chunk;
 * - an own index for each tool call: Ollama and Gemini send several under one index, or none;
 * - a role in the first piece;
 * - `reasoning` (vLLM, Ollama, OpenRouter) as `reasoning_content`;
 * - Gemini's thought signatures under `thought_signatures`, by the call's id, or `#` and its place when the id does not tell;
 *   that of an answer's text under the empty name.
 */
export async function* tidied(chunks: AsyncIterable<unknown>): AsyncGenerator<Value> {
  const calls = new CallIndexes();
  let usage: { of: Value; value: Value } | null = null;
  let begun = false;
  for await (const given of chunks) {
    const chunk = { ...(given as Value) };
    if (isRecord(chunk.usage)) usage = { of: chunk, value: withCacheHits(chunk.usage) };
    delete chunk.usage;
    const [choice] = Array.isArray(chunk.choices) ? (chunk.choices as unknown[]) : [];
    if (!isRecord(choice) || !isRecord(choice.delta)) {
      if (isRecord(choice) || usage?.of !== chunk) yield chunk;
      continue;
    }
    const delta = tidyDelta(choice.delta, calls);
    if (!begun && (typeof delta.role !== 'string' || delta.role === '')) delta.role = 'assistant';
    begun = true;
    yield { ...chunk, choices: [{ ...choice, delta }] };
  }
  if (usage !== null) yield { ...usage.of, choices: [], usage: usage.value };
}

function tidyDelta(given: Value, calls: CallIndexes): Value {
  const delta = { ...given };
  const signatures: Record<string, string> = {};
  const ofText = signatureOf(delta);
  if (ofText !== null) signatures[''] = ofText;
  if (typeof delta.reasoning === 'string' && delta.reasoning_content == null) delta.reasoning_content = delta.reasoning;
  if (delta.reasoning_content === null) delete delta.reasoning_content;
  if (Array.isArray(delta.tool_calls))
    delta.tool_calls = (delta.tool_calls as unknown[]).filter(isRecord).map((call) => {
      const { index, key } = calls.of(call);
      const signature = signatureOf(call);
      if (signature !== null) signatures[key] = signature;
      return { ...call, index };
    });
  if (Object.keys(signatures).length > 0) delta.thought_signatures = signatures;
  return delta;
}

/** Which call each piece of a stream belongs to. One per stream. */
class CallIndexes {
  /** By the index that the server sends: the newest call under it. */
  readonly #newest = new Map<number, { index: number; key: string; id: string | null }>();
  readonly #keys = new Set<string>();
  #next = 0;

  of(call: Value): { index: number; key: string } {
    const sent = typeof call.index === 'number' ? call.index : 0;
    const id = typeof call.id === 'string' && call.id !== '' ? call.id : null;
    const known = this.#newest.get(sent);
    // Pieces of one call repeat its id or have none; a name comes with the first of them only, and without an index each is a whole call.
    const named = isRecord(call.function) && typeof call.function.name === 'string' && call.function.name !== '';
    const another = id !== null ? id !== known?.id : named && (typeof call.index !== 'number' || known?.id === null);
    if (known !== undefined && !another) return known;
    const index = this.#next++;
    const key = id !== null && !this.#keys.has(id) ? id : `#${index}`;
    this.#keys.add(key);
    const fresh = { index, key, id };
    this.#newest.set(sent, fresh);
    return fresh;
  }
}

/** `extra_content.google.thought_signature`. */
function signatureOf(part: Value): string | null {
  const google = isRecord(part.extra_content) ? part.extra_content.google : null;
  const signature = isRecord(google) ? google.thought_signature : null;
  return typeof signature === 'string' && signature !== '' ? signature : null;
}

/** DeepSeek names what came from its cache differently. */
function withCacheHits(usage: Value): Value {
  if (typeof usage.prompt_cache_hit_tokens !== 'number' || isRecord(usage.prompt_tokens_details)) return usage;
  return { ...usage, prompt_tokens_details: { cached_tokens: usage.prompt_cache_hit_tokens } };
}

const isRecord = (value: unknown): value is Value =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
