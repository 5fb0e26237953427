import { ReindeerError, type Sandbox } from '@reindeer/protocol';
import type { Turn } from './checker.ts';
import type { Listening, SandboxProcess, Surrounding } from './process.ts';

const USER = 'user';
/** In the names of turns that are taken once everything has healed. */
const LAST = '.last';

/**
 * Takes turns of one thread, one at a time, now on this instance and now on that one: holds the thread's sandbox, runs commands, sometimes
 * with a sub-agent that borrows it, and leaves. A turn whose process dies or is stopped for long goes on elsewhere as another turn.
 */
export async function visitor(
  world: Surrounding,
  processes: readonly SandboxProcess[],
  threadId: string,
  until: number,
): Promise<void> {
  const { random, scheduler } = world;
  let at = random.pick(processes);
  for (let number = 1; scheduler.now < until; number += 1) {
    // Mostly one after the other; sometimes long enough apart for a sandbox to be parked, idle, reaped.
    const most = random.chance(0.25) ? 2 * world.settings.idleTimeoutMs + 60_000 : 40_000;
    await scheduler.sleep(random.below(most));
    if (random.chance(0.3)) at = random.pick(processes);
    const { listening } = at;
    if (listening === null) continue;
    await takeTurn(world, at, listening, `${threadId}.${number}`, threadId);
  }
}

/** One more turn of each thread after everything has healed: nobody may be locked out. */
export async function lastTurn(
  world: Surrounding,
  processes: readonly SandboxProcess[],
  threadId: string,
): Promise<void> {
  const { scheduler, chronicle, random, ttlMs, settings } = world;
  let began = scheduler.now;
  // Always here: a thread may move from wherever its sandbox is.
  const at = random.pick(processes);
  for (let number = 1; ; number += 1) {
    const { listening } = at;
    if (listening !== null && (await takeTurn(world, at, listening, `${threadId}${LAST}${number}`, threadId))) return;
    // A command that heeds no abort runs on when its turn is lost, and keeps its sandbox and its place until it ends (SB-45).
    if (settings.overflow === 'wait' && leftBehind(world)) began = scheduler.now;
    const waited = scheduler.now - began;
    // A marker of a holder that is gone stands for one time to live at most (SO-15).
    if (waited > ttlMs + 60_000) {
      chronicle.broken('L1', `thread ${threadId} has got no sandbox for ${waited} ms after everything had healed`);
      return;
    }
    await scheduler.sleep(2_000);
  }
}

/** Does a command of a turn from before everything healed still run? */
function leftBehind({ engine }: Surrounding): boolean {
  for (const { commands } of engine.containers.values())
    for (const { turn } of commands) if (!turn.includes(LAST)) return true;
  return false;
}

async function takeTurn(
  world: Surrounding,
  process: SandboxProcess,
  { shared, incarnation, signal }: Listening,
  name: string,
  threadId: string,
): Promise<boolean> {
  const { scheduler, chronicle, checker, engine, random } = world;
  const given = new AbortController();
  const both = AbortSignal.any([given.signal, signal]);
  const hold = (owner: string): Promise<Sandbox> => shared.hold({ userId: USER, threadId, owner, signal: both });
  const patience = 90_000 + random.below(60_000);
  let turn: Turn | null = null;
  const over = Promise.withResolvers<boolean>();
  const work = async (): Promise<void> => {
    const askedAt = scheduler.now;
    process.asking += 1;
    const sandbox = await hold(name).finally(() => {
      if (process.incarnation === incarnation) process.asking -= 1;
    });
    turn = { name, sandboxId: sandbox.id, incarnation, live: !both.aborted && process.incarnation === incarnation };
    process.turns.add(turn);
    checker.turnBegins(turn, engine, askedAt);
    await commands(world, incarnation, turn, sandbox, hold, both);
  };
  /** In the process: what a run does, and that it leaves whatever happened. */
  void incarnation
    .request(async () => {
      try {
        await work();
        over.resolve(true);
      } catch (error) {
        chronicle.note(() => `${incarnation.name} turn ${name} failed: ${String(error)}`);
        over.resolve(false);
      } finally {
        if (turn !== null) {
          turn.live = false;
          process.turns.delete(turn);
        }
        await shared.leave(name);
      }
    }, Number.MAX_SAFE_INTEGER)
    .catch(() => over.resolve(false));
  // Who asked gives up when there is no answer, and when the turn is nobody's any more.
  const watch = async (): Promise<void> => {
    const began = scheduler.now;
    for (;;) {
      await scheduler.sleep(1_000);
      const lost = turn === null ? scheduler.now - began > patience : !(turn as Turn).live;
      if (!lost && incarnation.alive) continue;
      given.abort(new ReindeerError('aborted', 'The turn is over.'));
      over.resolve(false);
      return;
    }
  };
  void watch();
  const done = await over.promise;
  given.abort(new ReindeerError('aborted', 'The turn is over.'));
  return done;
}

async function commands(
  world: Surrounding,
  incarnation: Listening['incarnation'],
  turn: Turn,
  first: Sandbox,
  hold: (owner: string) => Promise<Sandbox>,
  signal: AbortSignal,
): Promise<void> {
  const { random, checker, ttlMs, healed } = world;
  const count = healed() ? 1 : random.below(5);
  let sandbox = first;
  for (let number = 0; number < count; number += 1) {
    await incarnation.work(healed() ? 50 : random.below(random.chance(0.1) ? 60_000 : 8_000));
    if (signal.aborted || !turn.live) throw new ReindeerError('aborted', 'The turn is over.');
    // As the tools do: the same one, or another when the provider no longer knows it (SQ-11).
    sandbox = await hold(turn.name);
    const long = !healed() && random.chance(0.08) ? 3 * ttlMs : 5_000;
    checker.commandBegins();
    await sandbox.exec({ command: `${turn.name} ${10 + random.below(long)}`, timeoutMs: 3_600_000 });
  }
}
