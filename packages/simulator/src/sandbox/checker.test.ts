import {
  ABSENT_SANDBOX,
  type OwnershipValue,
  reduceSandbox,
  type SandboxEvent,
  type SandboxInfo,
} from '@reindeer/protocol';
import { seededRandom } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { Chronicle } from '../frame/chronicle.ts';
import { type Fate, Incarnation, type Request } from '../frame/incarnation.ts';
import { Scheduler } from '../frame/scheduler.ts';
import { SandboxChecker, STORE_OPERATION_MS } from './checker.ts';
import type { Container, Engine } from './engine.ts';

const FATE: Fate = { there: 1, back: 1, lost: null, outlivesCaller: false };
const SETTINGS = { ttlMs: 120_000, renewalIntervalMs: 30_000, teardownWaitMs: 12_000, idleTimeoutMs: 0 };

/** One instance that stops a container which another has started; `now` is set by hand. */
function scene() {
  const time = { now: 0 };
  const make = (name: string) =>
    new Incarnation({
      name,
      scheduler: new Scheduler(),
      random: seededRandom(1),
      fate: () => FATE,
      serve: async () => null,
      wallOffset: 0,
    });
  const [me, maker] = [make('me'), make('maker')];
  const chronicle = new Chronicle(() => time.now, false);
  const checker = new SandboxChecker(chronicle, () => time.now, SETTINGS);
  let value: OwnershipValue = null;
  checker.watch({ incarnation: me, calmSince: 0, value: () => value, room: 1, phase: () => null });
  checker.watch({ incarnation: maker, calmSince: 0, value: () => value, room: 1, phase: () => 'active' });
  const info: SandboxInfo = { id: 'x', url: 'http://x', name: 'x', createdAt: 0 };
  const container: Container = {
    id: 'x',
    info,
    createdBy: maker,
    bornAt: 0,
    state: 'running',
    ready: true,
    commands: new Set(),
    stops: new Set(),
  };
  const grant = (incarnation: Incarnation, at: number, method: string, args: readonly unknown[]): void => {
    time.now = at;
    value = { state: args.length > 1 ? 'del' : 'own', owner: incarnation.name };
    const request: Request = { incarnation, port: 'ownership', method, args, input: 'x', sentAt: at, fate: FATE };
    checker.granted(request, true);
  };
  const engine = { containers: new Map([['x', container]]) } as unknown as Engine;
  return {
    mark: (at: number) => grant(me, at, 'claim', ['x', { forDestroy: true }]),
    claim: (at: number) => grant(me, at, 'claim', ['x']),
    /** A turn of the other instance, with a command in the container. */
    turn: (at: number) => {
      grant(maker, at, 'take', ['x']);
      checker.turnBegins({ name: 't', sandboxId: 'x', incarnation: maker, live: true }, engine, at);
      container.commands.add({ incarnation: maker, turn: 't', cut: () => {} });
    },
    take: (at: number) => grant(maker, at, 'take', ['x']),
    die: () => me.die(),
    adopt: (at: number) => {
      time.now = at;
      const event: SandboxEvent = { type: 'adopt', info, now: at, epoch: 1 };
      checker.changed(me, ABSENT_SANDBOX, event, reduceSandbox(ABSENT_SANDBOX, event));
      return chronicle.violation?.invariant ?? null;
    },
    flush: (at: number) => {
      time.now = at;
      value = null;
      checker.flushed(new Map());
    },
    expire: () => {
      value = null;
    },
    kill: (sentAt: number, at: number) => {
      time.now = at;
      checker.killing({ container, incarnation: me, sentAt });
      return chronicle.violation?.invariant ?? null;
    },
  };
}

test('a stop under a standing marker is right, one without a marker is not', () => {
  const [marked, bare] = [scene(), scene()];
  marked.mark(1_000);
  expect(marked.kill(2_000, 3_000)).toBeNull();
  expect(bare.kill(2_000, 3_000)).toBe('S9');
  const expired = scene();
  expired.mark(1_000);
  expired.expire();
  expect(expired.kill(2_000, 3_000)).toBe('S9');
});

test('a marker that the store lost before its answer was heard is asked of nobody until its heartbeat', () => {
  const due = 5_000 + SETTINGS.renewalIntervalMs + STORE_OPERATION_MS;
  for (const [killedAt, broken] of [
    [6_000, null],
    [due, null],
    [due + 1, 'S9'],
  ] as const) {
    const { mark, flush, kill } = scene();
    mark(1_000);
    flush(2_000);
    expect(kill(5_000, killedAt)).toBe(broken);
  }
});

test('a marker that was lost before it was given excuses nothing', () => {
  const { mark, flush, expire, kill } = scene();
  flush(500);
  mark(1_000);
  expire();
  expect(kill(5_000, 6_000)).toBe('S9');
});

test('a stop whose process is gone is excused for a turn that came after its marker, and for no other', () => {
  const later = 1_000_000;
  const [gone, alive, before] = [scene(), scene(), scene()];
  for (const { mark } of [gone, alive]) mark(later);
  gone.die();
  for (const { turn } of [gone, alive]) turn(later + SETTINGS.ttlMs);
  expect(gone.kill(later + 1, later + SETTINGS.ttlMs + 1)).toBeNull();
  expect(alive.kill(later + 1, later + SETTINGS.ttlMs + 1)).toBe('S9');
  before.turn(later - 10);
  before.mark(later);
  before.die();
  expect(before.kill(later + 1, later + 2)).toBe('S9');
});

test('an adoption needs the store’s word, which may have been overtaken only on its way', () => {
  const [granted, never, long] = [scene(), scene(), scene()];
  granted.claim(1_000);
  granted.take(2_000);
  expect(granted.adopt(1_000 + STORE_OPERATION_MS)).toBeNull();
  never.take(2_000);
  expect(never.adopt(3_000)).toBe('SB-56');
  long.claim(1_000);
  long.take(2_000);
  expect(long.adopt(1_001 + STORE_OPERATION_MS)).toBe('SB-56');
});
