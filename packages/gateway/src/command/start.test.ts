import { EventEmitter } from 'node:events';
import { NO_LOG } from '@reindeer/protocol';
import { testSurroundings, verifies } from '@reindeer/testkit';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { hardDeadlineMs } from '../compose.ts';
import { resolveSettings } from '../config/settings.ts';
import type { Host } from './host.ts';
import { openSession } from './start.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

function setUp() {
  const loaded = { file: null, config: {}, variables: {}, root: '/nowhere', placeOf: () => null, warnings: [] };
  const settings = resolveSettings(loaded, {});
  const process = new EventEmitter();
  const said: string[] = [];
  const exits: number[] = [];
  const host = {
    process,
    say: (text: string) => said.push(text),
    exit: (code: number) => exits.push(code),
  } as unknown as Host;
  // A virtual clock that nobody moves: bounds of steps never pass, only the hard deadline does.
  const surroundings = { ...testSurroundings(), logger: NO_LOG };
  const order: string[] = [];
  const session = openSession(host, { settings, loaded, surroundings }, async (code) => {
    order.push(`before ${code}`);
  });
  const step = (name: string, stop: () => Promise<void>) =>
    session.lifecycle.start({
      name,
      boundMs: 1_000,
      start: async () => {},
      stop: async () => {
        order.push(name);
        await stop();
      },
    });
  return { settings, process, said, exits, order, session, step };
}

describe('a session', () => {
  test('ends with the code of its first stop when everything finishes', verifies('GW-24'), async () => {
    const { process, session, step, order, exits } = setUp();
    await step('a', async () => {});
    process.emit('SIGTERM');
    session.stop(1);
    expect(await session.ended).toBe(0);
    expect(order).toEqual(['before 0', 'a']);
    expect(process.eventNames()).toEqual([]);
    expect(vi.getTimerCount()).toBe(0);
    expect(exits).toEqual([]);
  });

  test('a part that fails to stop makes the code non-zero and is named', verifies('GW-24'), async () => {
    const { session, step, said } = setUp();
    await step('fine', async () => {});
    await step('broken', async () => {
      throw new Error('no');
    });
    session.stop(0);
    expect(await session.ended).toBe(1);
    expect(said.join('')).toContain('broken');
    expect(said.join('')).not.toContain('fine');
  });

  test('the hard deadline leaves with a non-zero code and the list', verifies('GW-24'), async () => {
    const { session, step, said, exits, settings } = setUp();
    await step('database', async () => {});
    await step('hanging', () => new Promise(() => {}));
    session.stop(0);
    await vi.advanceTimersByTimeAsync(hardDeadlineMs(settings) - 1);
    expect(exits).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(exits).toEqual([1]);
    expect(said.join('')).toMatch(/Unfinished: hanging, database\./);
  });

  test('an uncaught fault stops it once, with code 1', verifies('GW-25'), async () => {
    const { process, session, step, order } = setUp();
    await step('a', async () => {});
    process.emit('uncaughtException', new Error('x'));
    process.emit('uncaughtException', new Error('y'));
    process.emit('SIGTERM');
    expect(await session.ended).toBe(1);
    expect(order).toEqual(['before 1', 'a']);
  });
});
