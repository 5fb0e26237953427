import { HumanMessage } from '@langchain/core/messages';
import { interrupt, MemorySaver } from '@langchain/langgraph';
import { verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { defineMiddleware } from '../loop/middleware.ts';
import { recordedAttempt, testSurroundings } from '../test-support/fake-attempt.ts';
import { FakeModel } from '../test-support/fake-model.ts';
import { drain, fixture } from '../test-support/run-loop.ts';
import { CircuitBreaker } from './circuit-breaker.ts';
import { DEFAULT_LLM_CALL, ERROR_FALLBACK, llmErrorsMiddleware } from './llm-errors.ts';

const moving = () => {
  let now = 0;
  return {
    clock: { now: () => now, monotonic: () => now, sleep: async () => undefined },
    pass(milliseconds: number): void {
      now += milliseconds;
    },
  };
};
const SETTINGS = { failureThreshold: 3, recoveryTimeoutMs: 1_000 };

describe('circuit breaker', () => {
  test('failures in a row open it; after the pause one probe decides', verifies('MW-8c'), () => {
    const { clock, pass } = moving();
    const circuit = new CircuitBreaker(SETTINGS, clock);
    const enter = () => {
      const entered = circuit.enter();
      if (entered === null) throw new Error('refused');
      return entered;
    };
    const early = [enter(), enter(), enter()] as const;
    for (const end of ['failure', 'failure', 'success', 'failure', 'failure', 'neutral', 'failure'] as const)
      circuit.ended(enter(), end);
    expect(circuit.enter()).toBeNull();
    expect(circuit.remainingMs()).toBe(1_000);
    pass(1_000);
    const first = enter();
    expect(circuit.enter()).toBeNull();
    // Calls from before it opened end now: there is still one probe, and it alone decides.
    for (const [at, end] of (['neutral', 'success', 'failure'] as const).entries()) {
      circuit.ended(early[at] ?? first, end);
      expect(circuit.enter()).toBeNull();
    }
    // One that says nothing gives the probe back.
    circuit.ended(first, 'neutral');
    circuit.ended(enter(), 'failure');
    expect(circuit.enter()).toBeNull();
    pass(1_000);
    circuit.ended(enter(), 'success');
    expect([circuit.enter(), circuit.enter()]).toEqual([{ probe: false }, { probe: false }]);
  });

  const provider = (error: unknown) => Object.assign(new Error(String(error)), { status: error });
  const world = (errors: readonly unknown[], settings = SETTINGS) => {
    const { clock, pass } = moving();
    const surroundings = { ...testSurroundings(), clock };
    const model = new FakeModel([
      ...errors.map((error) => (error === null ? { text: 'fine' } : { error: provider(error) })),
      { text: 'fine' },
    ]);
    const { start } = fixture({
      model,
      middleware: [
        llmErrorsMiddleware({ ...DEFAULT_LLM_CALL, retryMaxAttempts: 1, circuitBreaker: settings }, surroundings),
      ],
    });
    return {
      model,
      pass,
      async ask() {
        const attempt = recordedAttempt();
        const { messages } = await drain(
          start(new MemorySaver(), attempt),
          { messages: [new HumanMessage('go')] },
          attempt,
        );
        return messages.at(-1);
      },
    };
  };

  test('an open circuit answers at once, readably, and lets the provider be', verifies('MW-8c'), async () => {
    const { model, pass, ask } = world([503, 503, 503, 503]);
    for (let count = 0; count < 3; count++) await ask();
    expect(model.requests).toHaveLength(3);
    const refused = await ask();
    expect(model.requests).toHaveLength(3);
    expect(refused?.additional_kwargs).toMatchObject({ [ERROR_FALLBACK]: true, error_reason: 'circuit_open' });
    expect(refused?.text).toMatch(/left alone for 1 s/);
    pass(1_000);
    await ask();
    expect(model.requests).toHaveLength(4);
    expect((await ask())?.additional_kwargs.error_reason).toBe('circuit_open');
    pass(1_000);
    expect((await ask())?.text).toBe('fine');
    expect((await ask())?.text).toBe('fine');
  });

  test('a wrong key, a wrong request and a limit on bursts do not open it', verifies('MW-8c'), async () => {
    const { model, ask } = world([401, 400, 401, 400, 400]);
    for (let count = 0; count < 6; count++) await ask();
    expect(model.requests).toHaveLength(6);
  });

  test(
    'a call that ends in a question to a person, or is stopped, does not hold the probe',
    verifies('MW-8c'),
    async () => {
      const { clock, pass } = moving();
      const surroundings = { ...testSurroundings(), clock };
      const model = new FakeModel([{ error: provider(503) }, { text: 'fine' }]);
      let asks = false;
      const asking = defineMiddleware({
        name: 'asking',
        wrapModelCall(request, handler) {
          if (asks) interrupt('sure?');
          return handler(request);
        },
      });
      const { start } = fixture({
        model,
        middleware: [
          llmErrorsMiddleware(
            {
              ...DEFAULT_LLM_CALL,
              retryMaxAttempts: 1,
              circuitBreaker: { failureThreshold: 1, recoveryTimeoutMs: 10 },
            },
            surroundings,
          ),
          asking,
        ],
      });
      const ask = async () => {
        const attempt = recordedAttempt();
        return drain(start(new MemorySaver(), attempt), { messages: [new HumanMessage('go')] }, attempt);
      };
      await ask();
      pass(10);
      asks = true;
      expect((await ask()).interrupts).toHaveLength(1);
      asks = false;
      expect((await ask()).messages.at(-1)?.text).toBe('fine');
    },
  );
});
