import type { OwnershipValue, SandboxInfo } from '@reindeer/protocol';
import { seededRandom } from '@reindeer/testkit';
import { expect, test } from 'vitest';
import { Chronicle } from '../frame/chronicle.ts';
import { type Fate, Incarnation, type Request } from '../frame/incarnation.ts';
import { Scheduler } from '../frame/scheduler.ts';
import { SandboxChecker, STORE_OPERATION_MS } from './checker.ts';
import type { Container } from './engine.ts';

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
  return {
    chronicle,
    mark: (at: number) => {
      time.now = at;
      value = { state: 'del', owner: 'me' };
      const args = ['x', { forDestroy: true }];
      const request: Request = {
        incarnation: me,
        port: 'ownership',
        method: 'claim',
        args,
        input: 'x',
        sentAt: at,
        fate: FATE,
      };
      checker.granted(request, true);
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
