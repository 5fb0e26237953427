import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { ToolMessage } from '@langchain/core/messages';
import { Command } from '@langchain/langgraph';
import { NO_LOG, type OwnershipStore, type SandboxLifecycle } from '@reindeer/protocol';
import { createLifecycleProvider, MemoryOwnershipStore, SharedLeases } from '@reindeer/sandbox';
import {
  BlockingCallError,
  NO_STORAGE,
  SimulatedEngine,
  testSurroundings,
  verifies,
  withEventLoopGate,
} from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
import { MemorySandboxes } from '../test-support/memory-sandbox.ts';
import { sandboxMiddleware } from './sandbox.ts';

const FILE = new URL(import.meta.url).pathname;

/** A provider whose store reads a file in each operation, and a scope that holds a sandbox of it. */
async function turn(touch: () => Promise<void>) {
  const surroundings = testSurroundings();
  const inner = new MemoryOwnershipStore({ ownerId: 'a', clock: surroundings.clock, ttlMs: 120_000 });
  const armed = { on: false };
  const ownership = new Proxy<OwnershipStore>(inner, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function') return value;
      return async (...input: readonly unknown[]): Promise<unknown> => {
        if (armed.on) await touch();
        return Reflect.apply(value as (...all: readonly unknown[]) => unknown, target, input);
      };
    },
  });
  const provider: SandboxLifecycle = createLifecycleProvider({
    backend: new SimulatedEngine(surroundings.clock).backend(),
    ownership,
    surroundings,
    storage: NO_STORAGE,
  });
  const scope = new AttemptScope(recordedAttempt(), new SharedLeases(provider, surroundings.logger));
  const { id } = await scope.sandbox();
  armed.on = true;
  const hook = sandboxMiddleware().afterAgent as unknown as (state: object, runtime: object) => Promise<unknown>;
  return { provider, id, end: () => hook({}, { configurable: { [SCOPE]: scope } }) };
}

test(
  'the end of a turn parks the sandbox without blocking the loop',
  verifies('SEED-000-01', 'BL-01', 'BL-07', 'SL-25'),
  async () => {
    let touched = 0;
    const { provider, id, end } = await turn(async () => {
      touched += 1;
      await readFile(FILE);
    });
    await withEventLoopGate(end);
    expect(touched).toBeGreaterThan(0);
    expect(provider.list()).toMatchObject([{ id, phase: 'warm' }]);
  },
);

/** A turn of one tool call in a scope whose provider says what was given back. */
async function call(result: unknown, state: Record<string, unknown>, uses: boolean) {
  const sandboxes = new MemorySandboxes();
  const scope = new AttemptScope(recordedAttempt(), new SharedLeases(sandboxes, NO_LOG));
  const runtime = { configurable: { [SCOPE]: scope } };
  const { wrapToolCall, afterAgent } = sandboxMiddleware() as unknown as {
    wrapToolCall(request: object, handler: () => Promise<unknown>): Promise<unknown>;
    afterAgent(state: object, runtime: object): Promise<unknown>;
  };
  const answer = await wrapToolCall({ state, runtime }, async () => {
    if (uses) await scope.sandbox();
    return result;
  });
  await afterAgent(state, runtime);
  return { answer, sandboxes };
}
const message = new ToolMessage({ content: 'x', tool_call_id: 'c' });

test('the first use is noted in the state, whatever else the tool changes there', verifies('SL-24'), async () => {
  const first = await call(message, {}, true);
  expect(first.answer).toMatchObject({ update: { messages: [message], sandbox: { sandbox_id: 'box-thread-1' } } });
  const more = await call(new Command({ update: { title: 't' } }), {}, true);
  expect(more.answer).toMatchObject({ update: { title: 't', sandbox: { sandbox_id: 'box-thread-1' } } });
  const known = await call(message, { sandbox: { sandbox_id: 'box-thread-1' } }, true);
  expect(known.answer).toBe(message);
  // A list of pairs is no mapping: it stays what it is.
  const pairs = new Command({ update: [['title', 't']] });
  expect((await call(pairs, {}, true)).answer).toBe(pairs);
});

test('a sandbox that only stands in the state is not given back', verifies('SL-26'), async () => {
  const forked = { sandbox: { sandbox_id: 'box-of-another-thread' } };
  expect((await call(message, forked, false)).sandboxes.released).toEqual([]);
  expect((await call(message, forked, true)).sandboxes.released).toEqual(['box-thread-1']);
});

test('a store that blocks in that moment trips the gate', verifies('SEED-000-02', 'BL-02'), async () => {
  const { end } = await turn(async () => void readFileSync(FILE));
  await expect(withEventLoopGate(end)).rejects.toThrow(BlockingCallError);
});
