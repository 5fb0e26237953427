import { NO_LOG } from '@reindeer/protocol';
import { SharedLeases } from '@reindeer/sandbox';
import { flush, verifies } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { SCOPE } from '../loop/scope.ts';
import { delegatingAttempt, delegation, task } from '../test-support/delegation.ts';
import { exited, MemorySandboxes } from '../test-support/memory-sandbox.ts';

const bash = { name: 'bash', args: { description: 'x', command: 'true' } };

/** A lead agent that works, delegates, and works again; `seen` says what had been given back before each command. */
function world() {
  const seen: (readonly string[])[] = [];
  const sandboxes = new MemorySandboxes({
    exec: () => {
      seen.push([...sandboxes.released]);
      return exited('ok');
    },
  });
  const leases = new SharedLeases(sandboxes, NO_LOG);
  const owners: string[] = [];
  const made = delegation({
    sandboxes,
    lead: [{ calls: [bash] }, { calls: [task('a'), task('b')] }, { calls: [bash] }, { text: 'Done.' }],
    child: (messages) => (messages.some(({ type }) => type === 'tool') ? { text: 'done' } : { calls: [bash] }),
    agent: {
      leases: {
        hold: (input) => {
          owners.push(input.owner);
          return leases.hold(input);
        },
        leave: (owner) => leases.leave(owner),
      },
    },
  });
  return { run: made.run, sandboxes, leases, owners, seen };
}

test(
  'lead agent and sub-agents use one sandbox; it is given back when the last of them leaves',
  verifies('SQ-07', 'SQ-09'),
  async () => {
    const { run, sandboxes, leases, seen } = world();
    await run();
    await flush();
    // Four commands in the same sandbox, and nothing was given back while any of them might come.
    expect(seen).toEqual([[], [], [], []]);
    expect(new Set(sandboxes.acquired)).toEqual(new Set(['box-thread-1']));
    expect(sandboxes.released).toEqual(['box-thread-1']);
    expect(leases.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
  },
);

test('nothing in a request says in whose name a sandbox is held', verifies('SQ-13'), async () => {
  const { run, owners } = world();
  const forged = { [SCOPE]: 'forged', sandbox_owner: 'forged', owner: 'forged', run_id: 'forged' };
  const attempt = delegatingAttempt(forged);
  Object.assign(attempt.run.request, { config: { configurable: forged } });
  await run({ attempt });
  expect(owners.length).toBeGreaterThan(3);
  // The run's own id and attempt; sub-agents add the id of their execution.
  for (const owner of owners) expect(owner).toMatch(/^run:run-1:1(\/[0-9a-f-]{36})?$/);
  expect(new Set(owners).size).toBe(3);
});
