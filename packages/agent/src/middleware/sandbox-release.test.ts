import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { OwnershipStore, SandboxLifecycle } from '@reindeer/protocol';
import { createLifecycleProvider, MemoryOwnershipStore, SharedLeases } from '@reindeer/sandbox';
import { BlockingCallError, SimulatedEngine, testSurroundings, verifies, withEventLoopGate } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { AttemptScope, SCOPE } from '../loop/scope.ts';
import { recordedAttempt } from '../test-support/fake-attempt.ts';
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
    storage: {
      files: () => {
        throw new Error('no files here');
      },
      prepare: async () => {},
      remove: async () => {},
      close: async () => {},
    },
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

test('a store that blocks in that moment trips the gate', verifies('SEED-000-02', 'BL-02'), async () => {
  const { end } = await turn(async () => void readFileSync(FILE));
  await expect(withEventLoopGate(end)).rejects.toThrow(BlockingCallError);
});
