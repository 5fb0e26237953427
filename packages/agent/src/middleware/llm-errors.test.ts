import { HumanMessage } from '@langchain/core/messages';
import { MemorySaver } from '@langchain/langgraph';
import { ReindeerError } from '@reindeer/protocol';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel, type Turn } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { DEFAULT_LLM_CALL, ERROR_FALLBACK, type LlmCallSettings, llmErrorsMiddleware } from './llm-errors.ts';
import { type FailureKind, readFailure } from './llm-failure.ts';

const NOW = Date.UTC(2026, 0, 5, 9, 0, 0);
const failure = (fields: Record<string, unknown>, message = 'failed'): Error =>
  Object.assign(new Error(message), fields);

describe('reading failures', () => {
  const cases: [string, unknown, FailureKind, boolean][] = [
    ['quota before status', failure({ status: 429, code: 'insufficient_quota' }), 'quota', false],
    ['payment required', failure({ status: 402 }), 'quota', false],
    ['used up, in Chinese', failure({ status: 400 }, '账户余额不足'), 'quota', false],
    ['wrong key', failure({ status: 401 }), 'auth', false],
    ['wrong key, text only', failure({}, 'Incorrect API key provided: sk-abcdefgh'), 'auth', false],
    ['burst', failure({ status: 429, code: 'limit_burst_rate' }), 'burst', true],
    ['too many requests', failure({ status: 429 }), 'transient', true],
    ['conflict', failure({ status: 409 }), 'transient', true],
    ['too early', failure({ status: 425 }), 'transient', true],
    ['time-out status', failure({ status: 408 }), 'transient', true],
    ['overloaded', failure({ status: 529, error: { type: 'overloaded_error' } }), 'transient', true],
    ['gateway', failure({ status: 502 }), 'transient', true],
    ['reset below', failure({ cause: failure({ code: 'ECONNRESET' }) }), 'transient', true],
    ['client class', failure({ name: 'APIConnectionTimeoutError' }), 'transient', true],
    ['own retryable', new ReindeerError('model_failed', 'cut', { retryable: true }), 'transient', true],
    ['socket text', failure({}, 'TypeError: fetch failed'), 'transient', true],
    ['empty generations', failure({}, 'list index out of range'), 'transient', true],
    ['busy, in Chinese', failure({}, '服务繁忙，请稍后重试'), 'busy', true],
    ['slow stream', failure({}, 'stream chunk timed out after 240 s'), 'stream_timeout', true],
    ['too long', failure({ status: 400, code: 'context_length_exceeded' }), 'too_long', false],
    ['bad request', failure({ status: 400 }, 'messages.0: try again later'), 'other', false],
    ['anything else', failure({}, 'odd'), 'other', false],
    ['no error at all', 'odd', 'other', false],
  ];
  for (const [name, error, kind, retryable] of cases)
    test(name, verifies('MW-8a'), () => {
      expect(readFailure(error, NOW)).toMatchObject({ kind, retryable });
    });

  test('the wait that a provider asks for: seconds, milliseconds, a date', verifies('MW-8a'), () => {
    const after = (headers: unknown): number | null => readFailure(failure({ status: 429, headers }), NOW).retryAfterMs;
    expect(after({ 'retry-after': '12' })).toBe(12_000);
    expect(after(new Headers({ 'Retry-After': '1.5' }))).toBe(1_500);
    expect(after({ 'retry-after-ms': '250', 'retry-after': '9' })).toBe(250);
    expect(after({ 'Retry-After': new Date(NOW + 30_000).toUTCString() })).toBe(30_000);
    expect(after({ 'retry-after': 'soon' })).toBeNull();
    expect(after(undefined)).toBeNull();
  });

  test('details carry no keys and no host paths, and end', () => {
    const { detail } = readFailure(
      failure({}, `bad sk-live-0123456789 at /srv/app/node_modules/x.js ${'y'.repeat(900)}`),
      NOW,
    );
    expect(detail).not.toMatch(/0123456789|\/srv/);
    expect(detail.length).toBeLessThanOrEqual(500);
  });
});

async function play(turns: readonly Turn[], settings: Partial<LlmCallSettings> = {}) {
  const surroundings = testSurroundings();
  const middleware = llmErrorsMiddleware({ ...DEFAULT_LLM_CALL, ...settings }, surroundings);
  const model = new FakeModel(turns);
  const attempt = recordedAttempt();
  const { start } = fixture({ model, middleware: [middleware] });
  const outcome = await drain(start(new MemorySaver(), attempt), { messages: [new HumanMessage('go')] }, attempt);
  return { ...outcome, model, sleeps: surroundings.sleeps };
}

describe('retries', () => {
  test('three tries, waits that grow within their bounds, an event before each', verifies('MW-8a'), async () => {
    const { model, sleeps, attempt, messages } = await play([
      { error: failure({ status: 500 }) },
      { error: failure({ status: 500 }) },
      { text: 'there' },
    ]);
    expect(model.requests).toHaveLength(3);
    // Decorrelated jitter with chance 0.5: base 1000, then between 1000 and 3 × the last wait.
    expect(sleeps).toEqual([1_000, 2_000]);
    expect(attempt.emitted).toMatchObject([
      { type: 'llm_error', attempt: 1, retried: true },
      { type: 'llm_retry', attempt: 1, max_attempts: 3, wait_ms: 1_000, reason: 'transient' },
      { type: 'llm_error', attempt: 2, retried: true },
      { type: 'llm_retry', attempt: 2, max_attempts: 3, wait_ms: 2_000, reason: 'transient' },
    ]);
    expect(messages.at(-1)?.text).toBe('there');
    expect(attempt.failures).toEqual([]);
  });

  test('each failed try is told for good: model, kind, status, whether it is tried again, and no word of the provider', async () => {
    const secret = 'sk-live-0123456789abcdef';
    const said = failure(
      { status: 503, headers: { authorization: secret } },
      `key ${secret} at https://u:${secret}@host`,
    );
    const refused = failure({ status: 401 }, `Incorrect API key provided: ${secret}`);
    const { attempt } = await play([{ error: said }, { error: refused }]);
    const told = attempt.emitted.filter((event) => (event as { type?: string }).type === 'llm_error');
    const event = { type: 'llm_error', provider: 'fake', model: 'fake-1', code: null, purpose: 'answer' };
    expect(told).toEqual([
      { ...event, kind: 'transient', status: 503, attempt: 1, retried: true },
      { ...event, kind: 'auth', status: 401, attempt: 2, retried: false },
    ]);
    expect(JSON.stringify(attempt.emitted)).not.toContain('0123456789');
  });

  test('no wait is longer than the cap, however often it was tried', verifies('MW-8a'), async () => {
    const turns = Array.from({ length: 9 }, () => ({ error: failure({ status: 500 }) }));
    const circuitBreaker = { ...DEFAULT_LLM_CALL.circuitBreaker, failureThreshold: 100 };
    const { sleeps } = await play([...turns, { text: 'there' }], { retryMaxAttempts: 10, circuitBreaker });
    expect(sleeps).toHaveLength(9);
    expect(Math.max(...sleeps)).toBe(8_000);
  });

  test('a burst is tried twice in all, after a longer wait', verifies('MW-8a'), async () => {
    const { model, sleeps, attempt } = await play([{ error: failure({ status: 429 }, 'burst') }]);
    expect(model.requests).toHaveLength(2);
    expect(sleeps).toEqual([5_000]);
    expect(attempt.failures).toHaveLength(1);
  });

  test('a slow stream is tried twice, and the advice is a smaller output', verifies('MW-8a'), async () => {
    const { model, messages } = await play([{ error: failure({}, 'stream chunk timeout') }]);
    expect(model.requests).toHaveLength(2);
    expect(messages.at(-1)?.text).toMatch(/smaller output/);
  });

  test('a wait beyond the bound is not waited: the message names it', verifies('MW-8a'), async () => {
    const { sleeps, messages } = await play([{ error: failure({ status: 429, headers: { 'retry-after': '7200' } }) }]);
    expect(sleeps).toEqual([]);
    expect(messages.at(-1)?.text).toMatch(/wait 120 minutes/);
  });

  test('no retry for what cannot get better; the message says what to do', verifies('MW-8a', 'MW-8b'), async () => {
    for (const [error, text] of [
      [failure({ status: 401 }), /does not accept the configured key/],
      [failure({ code: 'insufficient_quota' }), /quota or credit/],
      [failure({ status: 400 }, 'unknown field'), /refused the request: unknown field/],
      [
        failure({ status: 404 }, 'no model x\n\nTroubleshooting URL: https://example.com/x\n'),
        /^The model provider refused the request: no model x \(Is there a model [^ ]+ at its base_url\?\)$/,
      ],
    ] as const) {
      const { sleeps, messages, attempt } = await play([{ error }]);
      expect(sleeps).toEqual([]);
      expect(messages.at(-1)?.text).toMatch(text);
      expect(messages.at(-1)?.additional_kwargs).toMatchObject({
        [ERROR_FALLBACK]: true,
        error_type: 'Error',
        error_reason: expect.any(String),
        error_detail: expect.any(String),
      });
      expect(attempt.failures).toEqual([messages.at(-1)?.text]);
    }
  });

  test('a provider that cannot be reached is told from a busy one, with the key to look at', async () => {
    const refused = failure(
      { cause: Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }) },
      'Connection error.',
    );
    const { messages } = await play([{ error: refused }, { error: refused }, { error: refused }]);
    expect(messages.at(-1)?.text).toMatch(/could not be reached \(ECONNREFUSED\)\. Check base_url/);
  });

  test('pieces of a try that failed do not share an id with the answer', async () => {
    const model = new FakeModel([{ text: 'first words' }, { text: 'the answer' }]);
    const stream = model._streamResponseChunks.bind(model);
    let broken = true;
    model._streamResponseChunks = async function* (messages, options) {
      yield* stream(messages, options);
      if (!broken) return;
      broken = false;
      throw failure({ status: 503 });
    };
    const surroundings = testSurroundings();
    const { start } = fixture({ model, middleware: [llmErrorsMiddleware(DEFAULT_LLM_CALL, surroundings)] });
    const attempt = recordedAttempt();
    const { messages } = await drain(
      start(new MemorySaver(), attempt),
      { messages: [new HumanMessage('go')] },
      attempt,
    );
    const ids = (text: string) => attempt.pushed.filter((chunk) => chunk.content === text).map((chunk) => chunk.id);
    expect(ids('answer')).toEqual([messages.at(-1)?.id]);
    expect(ids('first ')).not.toEqual([messages.at(-1)?.id]);
  });

  test('a stop during a wait ends it at once', async () => {
    const surroundings = testSurroundings();
    const attempt = recordedAttempt();
    const clock = {
      ...surroundings.clock,
      sleep: (_milliseconds: number, signal?: AbortSignal) =>
        new Promise<void>((_resolve, reject) => {
          signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
          attempt.abort();
        }),
    };
    const { start } = fixture({
      model: new FakeModel([{ error: failure({ status: 503 }) }]),
      middleware: [llmErrorsMiddleware(DEFAULT_LLM_CALL, { ...surroundings, clock })],
    });
    await expect(
      drain(start(new MemorySaver(), attempt), { messages: [new HumanMessage('go')] }, attempt),
    ).rejects.toThrow();
    expect(attempt.failures).toEqual([]);
    expect(await attempt.effects.stopped(1_000)).toEqual([]);
  });

  test('a mistake in the set-up is no provider failure and stays an error', async () => {
    await expect(play([{ error: new ReindeerError('configuration', 'wrong') }])).rejects.toThrow('wrong');
  });
});
