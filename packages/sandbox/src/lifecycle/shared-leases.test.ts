import type { Sandbox, SandboxProvider } from '@reindeer/protocol';
import {
  deferred,
  flush,
  gated,
  LogRecorder,
  NO_STORAGE,
  SimulatedEngine,
  testSurroundings,
  verifies,
} from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { MemoryOwnershipStore } from './ownership/memory-store.ts';
import { LifecycleProvider } from './provider.ts';
import { SharedLeases } from './shared-leases.ts';

const THREAD = { userId: 'u', threadId: 't' };
const OTHER = { userId: 'u', threadId: 'other' };

function scene() {
  const surroundings = testSurroundings();
  const engine = new SimulatedEngine(surroundings.clock);
  const ownership = new MemoryOwnershipStore({ ownerId: 'a', clock: surroundings.clock, ttlMs: 120_000 });
  const provider = new LifecycleProvider({ backend: engine.backend(), ownership, storage: NO_STORAGE, surroundings });
  const outer = gated<SandboxProvider>(provider, ['acquire', 'release']);
  const leases = new SharedLeases(outer.target, new LogRecorder());
  const phase = (sandbox: Sandbox) => provider.list().find(({ id }) => id === sandbox.id)?.phase ?? null;
  return { engine, provider, outer, leases, phase };
}

test('only the last of several holders parks the sandbox, once', verifies('SQ-07'), async () => {
  const { leases, outer, phase } = scene();
  const owners = ['lead', 'sub-1', 'sub-2', 'sub-3'];
  const held = await Promise.all(owners.map((owner) => leases.hold({ owner, ...THREAD })));
  const sandbox = held[0] as Sandbox;
  expect(new Set(held).size).toBe(1);
  expect(leases.holders(sandbox.id)).toBe(4);
  for (const owner of owners.slice(0, 3)) {
    await leases.leave(owner);
    expect([outer.of('release').length, phase(sandbox)]).toEqual([0, 'active']);
  }
  await leases.leave('sub-3');
  expect([outer.of('release').length, phase(sandbox)]).toEqual([1, 'warm']);
  expect(leases.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
});

test('all at once, too', verifies('SQ-07', 'SQ-09'), async () => {
  const { leases, outer } = scene();
  const owners = Array.from({ length: 20 }, (_, n) => `owner-${n}`);
  await Promise.all(owners.map((owner) => leases.hold({ owner, ...THREAD })));
  await Promise.all([...owners, ...owners].map((owner) => leases.leave(owner)));
  expect(outer.of('release')).toHaveLength(1);
  expect(leases.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
});

test('a park that was asked for is done by the last borrower', verifies('SQ-08'), async () => {
  const { leases, outer, phase } = scene();
  const sandbox = await leases.hold({ owner: 'lead', ...THREAD });
  await leases.hold({ owner: 'borrower', ...THREAD });
  await leases.leave('lead');
  expect([outer.of('release').length, phase(sandbox)]).toEqual([0, 'active']);
  await leases.leave('borrower', { park: false });
  expect([outer.of('release').length, phase(sandbox)]).toEqual([1, 'warm']);
});

test('borrowers alone park nothing', verifies('SQ-08'), async () => {
  const { leases, outer, phase } = scene();
  const sandbox = await leases.hold({ owner: 'borrower', ...THREAD });
  await leases.leave('borrower', { park: false });
  expect([outer.of('release').length, phase(sandbox)]).toEqual([0, 'active']);
});

test('leaving twice is leaving once', verifies('SQ-09'), async () => {
  const { leases, outer, phase } = scene();
  const sandbox = await leases.hold({ owner: 'lead', ...THREAD });
  await leases.hold({ owner: 'sub', ...THREAD });
  await leases.leave('lead');
  await leases.leave('lead');
  await leases.leave('nobody');
  expect([outer.of('release').length, phase(sandbox), leases.holders(sandbox.id)]).toEqual([0, 'active', 1]);
});

test('an owner that holds one thread’s sandbox gets no other’s', verifies('SQ-10'), async () => {
  const { leases, engine } = scene();
  const sandbox = await leases.hold({ owner: 'lead', ...THREAD });
  await expect(leases.hold({ owner: 'lead', ...OTHER })).rejects.toMatchObject({ code: 'conflict' });
  await expect(leases.hold({ owner: 'lead', ...THREAD, userId: 'x' })).rejects.toMatchObject({ code: 'conflict' });
  expect(engine.created).toEqual([sandbox.id]);
  await leases.leave('lead');
  expect((await leases.hold({ owner: 'lead', ...OTHER })).id).not.toBe(sandbox.id);
});

test('a sandbox that the provider no longer knows is acquired again', verifies('SQ-11'), async () => {
  const { leases, provider, engine, outer } = scene();
  const first = await leases.hold({ owner: 'lead', ...THREAD });
  await leases.hold({ owner: 'sub', ...THREAD });
  expect(await leases.hold({ owner: 'lead', ...THREAD })).toBe(first);
  expect(outer.of('acquire')).toHaveLength(2);
  await provider.destroy(first.id);
  const second = await leases.hold({ owner: 'lead', ...THREAD });
  expect(second).not.toBe(first);
  expect(provider.get(second.id)).toBe(second);
  expect(engine.created).toHaveLength(2);
  // The sub-agent's binding was void as well; it joins again, and then two leave.
  expect(await leases.hold({ owner: 'sub', ...THREAD })).toBe(second);
  expect(leases.holders(second.id)).toBe(2);
});

test(
  'an acquire whose caller gave up is awaited and undone before the thread opens again',
  verifies('SQ-12'),
  async () => {
    const { leases, outer, phase } = scene();
    const acquire = outer.hold('acquire', 'after');
    const controller = new AbortController();
    const given = leases.hold({ owner: 'lead', ...THREAD, signal: controller.signal });
    given.catch(() => {});
    await acquire.reached;
    const next = leases.hold({ owner: 'next', ...THREAD });
    controller.abort();
    await flush();
    const release = outer.hold('release', 'before');
    acquire.open();
    await release.reached;
    expect(outer.of('acquire')).toHaveLength(1);
    release.open();
    await expect(given).rejects.toMatchObject({ code: 'aborted' });
    const sandbox = await next;
    expect([outer.of('release').length, phase(sandbox), leases.holders(sandbox.id)]).toEqual([1, 'active', 1]);
  },
);

test('an acquire that was given up parks nothing under another holder', verifies('SQ-12', 'SQ-07'), async () => {
  const { leases, outer, phase } = scene();
  const sandbox = await leases.hold({ owner: 'lead', ...THREAD });
  const acquire = outer.hold('acquire', 'after');
  const controller = new AbortController();
  const given = leases.hold({ owner: 'sub', ...THREAD, signal: controller.signal });
  given.catch(() => {});
  await acquire.reached;
  controller.abort();
  acquire.open();
  await expect(given).rejects.toMatchObject({ code: 'aborted' });
  expect([outer.of('release').length, phase(sandbox), leases.holders(sandbox.id)]).toEqual([0, 'active', 1]);
});

test('a failed acquire binds nobody', verifies('SQ-06'), async () => {
  const { leases, outer } = scene();
  outer.break(new Error('no engine'), 'acquire');
  await expect(leases.hold({ owner: 'lead', ...THREAD })).rejects.toThrow('no engine');
  expect(leases.sizes()).toEqual({ bindings: 0, shared: 0, sections: 0 });
  outer.heal();
  await leases.hold({ owner: 'lead', ...OTHER });
});

test('leaving and joining in one moment never parks under the one who joined', verifies('SQ-07'), async () => {
  const { leases, outer, phase } = scene();
  const sandbox = await leases.hold({ owner: 'lead', ...THREAD });
  const parked = deferred();
  const release = outer.hold('release', 'before');
  const leaving = leases.leave('lead').then(() => parked.resolve());
  await release.reached;
  const joining = leases.hold({ owner: 'next', ...THREAD });
  await flush();
  expect(outer.of('acquire')).toHaveLength(1);
  release.open();
  await Promise.all([leaving, parked.promise]);
  expect((await joining).id).toBe(sandbox.id);
  expect(phase(sandbox)).toBe('active');
});
