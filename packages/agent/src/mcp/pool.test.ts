import { NO_LOG, ReindeerError } from '@reindeer/protocol';
import { VirtualClock, verifies } from '@reindeer/testkit';
import { describe, expect, test } from 'vitest';
import { SessionPool } from './pool.ts';

class Session {
  readonly name: string;
  closed = 0;
  constructor(name: string) {
    this.name = name;
  }
}

interface Opening {
  readonly key: string;
  readonly signal: AbortSignal;
  succeed(): Session;
  fail(error: Error): void;
}

function world(capacity = 10) {
  const clock = new VirtualClock();
  const openings: Opening[] = [];
  const sessions: Session[] = [];
  let hold: Promise<void> | null = null;
  const pool = new SessionPool<Session>({
    clock,
    logger: NO_LOG,
    capacity,
    open: (server, scope, signal) =>
      new Promise<Session>((resolve, reject) => {
        openings.push({
          key: `${server}/${scope}`,
          signal,
          succeed() {
            const session = new Session(`${server}/${scope}`);
            sessions.push(session);
            resolve(session);
            return session;
          },
          fail: reject,
        });
      }),
    close: async (session) => {
      session.closed += 1;
      await hold;
    },
  });
  return {
    clock,
    pool,
    openings,
    sessions,
    opening: (at: number): Opening => {
      const found = openings[at];
      if (found === undefined) throw new Error(`no opening ${at}`);
      return found;
    },
    holdClosing: (promise: Promise<void>) => {
      hold = promise;
    },
  };
}

const turns = async (count = 20): Promise<void> => {
  for (let turn = 0; turn < count; turn += 1) await Promise.resolve();
};
const outcome = (work: Promise<unknown>): Promise<string> =>
  work.then(
    (value) => `got ${value}`,
    (error: unknown) => (ReindeerError.is(error) ? error.code : (error as Error).message),
  );
const nameOf = async (session: Session): Promise<string> => session.name;

describe('sessions with MCP servers', () => {
  test('callers at once share one opening; later ones its session', verifies('MC-01', 'MCP-3'), async () => {
    const { pool, openings, opening } = world();
    const both = [pool.use('a', 's', nameOf), pool.use('a', 's', nameOf)];
    opening(0).succeed();
    expect(await Promise.all(both)).toEqual(['a/s', 'a/s']);
    await pool.use('a', 's', nameOf);
    expect(openings).toHaveLength(1);
  });

  test('a failed opening reaches all who share it and is not kept', verifies('MC-02', 'MC-12'), async () => {
    const { pool, opening, sessions } = world();
    const both = [outcome(pool.use('a', 's', nameOf)), outcome(pool.use('a', 's', nameOf))];
    opening(0).fail(new Error('no such program'));
    expect(await Promise.all(both)).toEqual(['no such program', 'no such program']);
    await turns();
    expect(pool.size).toBe(0);
    const again = pool.use('a', 's', nameOf);
    opening(1).succeed();
    expect(await again).toBe('a/s');
    expect(sessions.map((session) => session.closed)).toEqual([0]);
  });

  test(
    'what is opened after its end was wished is closed once, and nobody gets it',
    verifies('MC-03', 'MC-04'),
    async () => {
      const { pool, opening, sessions } = world();
      const waiting = outcome(pool.use('a', 's', nameOf));
      const closing = pool.closePair('a', 's');
      expect(opening(0).signal.aborted).toBe(true);
      expect(await waiting).toBe('tool_failed');
      opening(0).succeed();
      await closing;
      expect(sessions.map((session) => session.closed)).toEqual([1]);
      expect(pool.size).toBe(0);
    },
  );

  test(
    'the one that has been unused longest makes room; one in use never does',
    verifies('MC-05', 'MC-11'),
    async () => {
      const { pool, opening, openings, sessions, clock } = world(2);
      const first = pool.use('a', '1', nameOf);
      opening(0).succeed();
      await first;
      await clock.advance(10);
      let finish = (): void => {};
      const busy = pool.use(
        'a',
        '2',
        () =>
          new Promise<void>((resolve) => {
            finish = resolve;
          }),
      );
      opening(1).succeed();
      await turns();
      // One idles, one works: the idle one goes.
      const third = pool.use('a', '3', nameOf);
      await turns();
      expect(sessions.map((session) => session.closed)).toEqual([1, 0]);
      // Being opened counts as well, and neither of the two may go.
      expect(await outcome(pool.use('a', '4', nameOf))).toBe('over_capacity');
      opening(2).succeed();
      await third;
      finish();
      await busy;
      expect(openings).toHaveLength(3);
    },
  );

  test(
    'closing all stops openings, closes at once, ends within a bound, and refuses what comes later',
    verifies('MC-06', 'MC-09', 'GW-10'),
    async () => {
      const { pool, opening, sessions, clock, holdClosing } = world();
      const open = ['1', '2', '3'].map((scope) => pool.use('a', scope, nameOf));
      for (const at of [0, 1, 2]) opening(at).succeed();
      await Promise.all(open);
      const opened = outcome(pool.use('a', '4', nameOf));
      holdClosing(new Promise(() => {}));
      const closing = pool.closeAll();
      expect(pool.closeAll()).toBe(closing);
      expect(await opened).toBe('shutting_down');
      await turns();
      expect(sessions.map((session) => session.closed)).toEqual([1, 1, 1]);
      expect(opening(3).signal.aborted).toBe(true);
      expect(await outcome(pool.use('b', '1', nameOf))).toBe('shutting_down');
      let ended = false;
      void closing.then(() => {
        ended = true;
      });
      await clock.advance(4_999);
      expect(ended).toBe(false);
      // Each gives up after five seconds; the opening that ignores its signal costs the overall bound.
      await clock.advance(5_001);
      await closing;
    },
  );

  test('a scope, a server, one pair: exactly those close, those in flight too', verifies('MC-08'), async () => {
    const { pool, openings, sessions } = world();
    const make = async (server: string, scope: string): Promise<void> => {
      const made = pool.use(server, scope, nameOf);
      openings.at(-1)?.succeed();
      await made;
    };
    for (const [server, scope] of [
      ['a', '1'],
      ['a', '2'],
      ['b', '1'],
      ['b', '2'],
      ['c', '1'],
    ] as const)
      await make(server, scope);
    const closed = (): string[] => sessions.filter((session) => session.closed > 0).map((session) => session.name);
    await pool.closePair('a', '2');
    expect(closed()).toEqual(['a/2']);
    await pool.closeScope('1');
    expect(closed()).toEqual(['a/1', 'a/2', 'b/1', 'c/1']);
    await make('b', '1');
    const flying = outcome(pool.use('b', '3', nameOf));
    const closing = pool.closeServer('b');
    openings.at(-1)?.succeed();
    await closing;
    expect(await flying).toBe('tool_failed');
    expect(sessions.filter((session) => session.closed === 0)).toEqual([]);
    expect(pool.size).toBe(0);
  });

  test(
    'the first caller may give up: the opening is the pool’s, and the others get it',
    verifies('MC-10'),
    async () => {
      const { pool, opening } = world();
      const stop = new AbortController();
      const first = outcome(pool.use('a', 's', nameOf, stop.signal));
      const second = pool.use('a', 's', nameOf);
      stop.abort();
      expect(await first).toBe('aborted');
      expect(opening(0).signal.aborted).toBe(false);
      opening(0).succeed();
      expect(await second).toBe('a/s');
    },
  );

  test('idle sessions are closed, those in use are not', async () => {
    const { pool, opening, sessions, clock } = world();
    const idle = pool.use('a', '1', nameOf);
    opening(0).succeed();
    await idle;
    void pool.use('a', '2', () => new Promise(() => {}));
    opening(1).succeed();
    await clock.advance(1_000);
    await pool.closeIdle(1_000);
    expect(sessions.map((session) => session.closed)).toEqual([1, 0]);
  });
});
